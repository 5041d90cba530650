"""Figure 1: the two networks, drawn."""

from pathlib import Path

from digrad_studies.setting import PUSH_GRAPH


def networks(folder: Path) -> list[Path]:
    """Draw Figure 1: an Erdos-Renyi graph with p = 0.1 and the multi-sub-ring graph, n = 8."""
    from digrad.networks import erdos_renyi, multi_sub_ring, weigh
    from digrad.show.figures import draw_network, save_figure
    from digrad.theory import perron

    drawn = []
    for name, title, graph in (
        ("erdos-renyi", "Erdos-Renyi, n = 8, p = 0.1", erdos_renyi(8, 0.1)),
        ("multi-sub-ring", "Multi. Sub-Ring, n = 8", multi_sub_ring(8)),
    ):
        net = weigh(graph, push_graph=PUSH_GRAPH)
        figure = draw_network(net, perron(net).pi_R, title=title)
        drawn += [save_figure(figure, folder / f"{name}{suffix}") for suffix in (".png", ".pdf")]
    return drawn
