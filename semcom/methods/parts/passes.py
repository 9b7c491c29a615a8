"""A pass of the clients' training images through their models, without training."""

from __future__ import annotations

from semcom.engine.store.population import Population
from semcom.engine.train.visit import Visitor, visit_clients
from semcom.engine.world import World


def pass_training_images(world: World, pop: Population, fn: Visitor, stream: str) -> None:
    """Show the received features of each client's training images to `fn`, in evaluation mode, over the training link.

    Each of several processes shows its share of the clients. With a split method the base station hears the features,
    so they are counted.

    Args:
        world: the run.
        pop: n models.
        fn: the visitor.
        stream: names the draws of the link.
    """
    session = world.session
    draws, tally = session.draws, session.tally
    tally.uplink(pop.ids)
    session.compute(pop, world.sizes(pop.ids), ())
    link, meter = draws.training_link, tally.meters["train_up"]
    visit_clients(session, pop, draws.federation.train, fn, stream=stream, link=link, meter=meter)
