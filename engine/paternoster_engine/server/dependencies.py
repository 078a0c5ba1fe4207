"""What routes are given."""

from typing import Annotated

from fastapi import Depends, Request

from paternoster_engine.server.state import ServerState


async def server_state(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


State = Annotated[ServerState, Depends(server_state)]
