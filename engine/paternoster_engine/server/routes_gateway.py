"""What gateways alone call: the stream of text chains, and the hand-over of a call."""

from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from paternoster_contract.http import paths
from paternoster_contract.stream_journal import JOURNAL, STREAM_ID, StreamId
from paternoster_contract.text_chains.stream import MAX_SUBSCRIBERS, MEDIA_TYPE
from paternoster_engine.server.dependencies import State
from paternoster_engine.server.errors import InvalidValue, OtherNumerics
from paternoster_engine.server.text_chains.feed import TextChainFeed

router = APIRouter()


class FeedResponse(StreamingResponse):
    """Ends the subscription however it ends."""

    def __init__(self, feed: TextChainFeed, instance: str | None, after: int | None) -> None:
        self._frames = feed.subscribe(instance, after)
        super().__init__(self._frames, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._frames.aclose()


@router.get(paths.TEXT_CHAINS, response_class=Response, responses={200: {"content": {MEDIA_TYPE: {}}}})
async def text_chains(
    request: Request,
    state: State,
    instance: Annotated[str | None, Query(max_length=64)] = None,
    after: Annotated[int | None, Query(ge=0, le=2**63)] = None,
) -> Response:
    """Pieces of text that the prefix cache can serve: a snapshot, or the changes since ``after``, then each change."""
    feed = state.served.text_chains
    if feed is None:
        raise HTTPException(404, "This engine keeps no text chains.")
    if not feed.accepts:
        raise HTTPException(
            503,
            f"Text chains have at most {MAX_SUBSCRIBERS} readers, and none once the engine ends.",
            {"Retry-After": "5"},
        )
    return FeedResponse(feed, instance, after)


@router.post(paths.HAND_OVER, status_code=204, response_class=Response)
async def hand_over(
    state: State,
    stream_id: Annotated[str, Header(alias=STREAM_ID)] = "",
    numerics: Annotated[str, Header(alias=JOURNAL)] = "",
) -> None:
    """Answer the call with ``stream_id``, which has got no byte yet, with its journal.

    404 where there is no such call, 412 where the engine with ``numerics`` computes other numbers.
    """
    try:
        call = StreamId.decode(stream_id)
    except ValueError as error:
        raise InvalidValue(STREAM_ID, f"{STREAM_ID}: {error}") from error
    if numerics != state.served.fingerprint:
        raise OtherNumerics(numerics, state.served.fingerprint)
    if not state.served.answers.unanswered.hand_over(call):
        raise HTTPException(404, "There is no such call, or its answer has begun.")
