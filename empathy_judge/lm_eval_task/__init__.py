"""lm-evaluation-harness: the task `empathy_replies`, a model's replies to our 160 prompts, judged.

lm-eval run --include_path "$(python -m empathy_judge.lm_eval_task)" --tasks empathy_replies --model ...
"""
