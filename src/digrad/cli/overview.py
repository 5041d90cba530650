"""What ``digrad`` says when it is given nothing to do."""

TRY = (
    (
        "Is a network good? Does Stochastic Push-Pull work on it, and how fast?",
        "digrad analyze multi-sub-ring -n 20",
    ),
    (
        "Which method is best? An experiment is one file; change it and run it again.",
        "digrad init experiment.toml && digrad run experiment.toml",
    ),
    (
        "What does the paper show? Its Figure 2, smaller, as a page to look at.",
        "digrad reproduce logistic --quick",
    ),
)
MORE = (
    ("digrad --help", "all commands"),
    ("digrad COMMAND --help", "one of them, with an example"),
    ("digrad list topologies", "what there is; also algorithms, problems, ..."),
    ("digrad --install-completion", "complete names with the Tab key"),
)


def greet(version: str) -> None:
    """Print three things to try: in colour on a terminal, plain elsewhere."""
    from rich.console import Console
    from rich.text import Text

    text = Text()
    text.append(f"digrad {version}", style="bold")
    text.append(": decentralized learning over directed networks\n\nThree things to try\n")
    for what, command in TRY:
        text.append(f"\n  {what}\n")
        text.append(f"    {command}\n", style="cyan")
    text.append("\nMore\n\n")
    width = max(len(command) for command, _ in MORE)
    for command, what in MORE:
        text.append(f"  {command:{width}}", style="cyan")
        text.append(f"  {what}\n")
    Console(highlight=False).print(text, end="", soft_wrap=True)
