"""A person who answers Airflow's next required action, as its API does; runs in Airflow's environment."""

from __future__ import annotations

import sys
import time


def answer(option: str) -> str:
    """Wait until Airflow asks, choose an option, and return the subject of the question."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    while True:
        with create_session() as session:
            found = session.execute(
                select(TaskInstance, HITLDetail)
                .join(HITLDetail, HITLDetail.ti_id == TaskInstance.id)
                .where(HITLDetail.responded_at.is_(None), TaskInstance.state == "awaiting_input")
            ).first()
            if found is not None:
                task, asked = found
                subject = str(asked.subject)
                update_hitl_detail(
                    task.dag_id,
                    task.run_id,
                    task.task_id,
                    UpdateHITLDetailPayload(chosen_options=[option]),
                    SimpleAuthManagerUser(username="a-person", role="admin"),
                    session,
                )
                return subject
        time.sleep(0.5)


if __name__ == "__main__":
    print(answer(sys.argv[1]))
