# Two stages: the first installs what requirements.txt locks, the second holds that and our packages, and no compiler.
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements.txt .
RUN python3 -m venv /venv && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --require-hashes -r requirements.txt
RUN printf '#!/venv/bin/python\nfrom sluice.cli import main\n\nmain()\n' > /venv/bin/sluice && chmod 755 /venv/bin/sluice \
    && rm -rf /venv/lib/python3*/site-packages/pip /venv/bin/pip*

FROM python:3.13-slim
ENV PATH=/venv/bin:/usr/local/bin:/usr/bin:/bin PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app
COPY --from=build /venv /venv
COPY deploy/health /usr/local/bin/sluice-health
COPY LICENSE .
COPY alembic alembic
COPY db db
COPY gateway gateway
COPY pages pages
COPY policy policy
COPY protocol protocol
COPY providers providers
COPY settings settings
COPY demo demo
COPY sluice sluice
COPY streams streams
COPY workers workers
RUN /venv/bin/python -m compileall -q /app
USER 10001:10001
EXPOSE 8080
CMD ["sluice", "--help"]
