# Three images of one file. Packages have the versions and hashes of the locks; nobody in them is root. The base image
# is named by its tag: to pin it, put the digest that your registry shows behind the tag (python:3.11-slim@sha256:...).
#   docker build --target score -t empathy-judge .
#   docker run --rm --network none --user "$(id -u)" -v "$PWD:/work" empathy-judge responses.jsonl
#   docker build --target serve -t empathy-judge-serve .
#   docker run --rm -p 127.0.0.1:8321:8321 -e JUDGE_KEY empathy-judge-serve
#   docker build --target nightly -t empathy-judge-nightly .
#   docker run --rm --network host --user "$(id -u)" -v "$PWD/nights:/work" -e OPENAI_API_KEY empathy-judge-nightly
# /work is where files are read and written: for a night nightly.toml, its history, runs and dashboard.

FROM python:3.11-slim AS base
RUN useradd --uid 1000 judge
WORKDIR /work
COPY requirements-run.lock /source/
RUN pip install --no-cache-dir --no-deps --require-hashes -r /source/requirements-run.lock

FROM base AS build
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels /source && \
    cp -r /source/requirements /wheels

FROM base AS nightly
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --require-hashes -r /wheels/requirements/nightly.lock && \
    pip install --no-cache-dir --no-deps /wheels/*.whl
USER 1000
ENTRYPOINT ["empathy-judge", "nightly"]
CMD ["nightly.toml"]

FROM base AS serve
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps --require-hashes -r /wheels/requirements/serve.lock && \
    pip install --no-cache-dir --no-deps /wheels/*.whl
USER 1000
EXPOSE 8321
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8321/health', timeout=4)"]
ENTRYPOINT ["empathy-judge", "serve"]
CMD ["--host", "0.0.0.0", "--key-env", "JUDGE_KEY"]

FROM base AS score
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-deps /wheels/*.whl
USER 1000
ENTRYPOINT ["empathy-judge", "score"]
CMD ["--help"]
