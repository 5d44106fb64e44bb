"""Run the command line from a checkout: `python cli.py score responses.jsonl`."""

from empathy_judge.commands.main import main

if __name__ == "__main__":
    main()
