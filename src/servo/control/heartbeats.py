"""Heartbeats: signs of life stay in memory; at most one per task and half timeout becomes a fact."""

from servo.control.moment import Moment
from servo.events.execution import TaskHeartbeat
from servo.fold.state import State


def heartbeats(view: State, moment: Moment) -> list[TaskHeartbeat]:
    """What a new leader would have to know: attempts heard of long after what the tables say."""
    facts = []
    for run in view.active_runs():
        for key in sorted(run.open):
            attempt = run.tasks[key].current
            assert attempt is not None and attempt.dispatched is not None and run.shape is not None
            heard = moment.heard.get(attempt.attempt_id)
            if heard is None:
                continue
            known = attempt.heartbeat or attempt.started or attempt.dispatched
            if heard - known[2] >= run.shape.rules(key).timeouts.heartbeat_ms * 500:
                facts.append(
                    TaskHeartbeat(
                        run_id=run.run_id,
                        task_key=key,
                        attempt=attempt.number,
                        attempt_id=attempt.attempt_id,
                    )
                )
    return facts
