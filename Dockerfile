# PostgreSQL with gkmeans, for the CPU:
#   docker build -t gkmeans . && docker run -e POSTGRES_PASSWORD=secret -p 5432:5432 gkmeans
ARG PG_MAJOR=15
FROM postgres:${PG_MAJOR}-bookworm AS build
ARG PG_MAJOR
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential postgresql-server-dev-${PG_MAJOR}
COPY . /gkmeans
RUN make -C /gkmeans clean && make -C /gkmeans -j"$(nproc)" install DESTDIR=/out

FROM postgres:${PG_MAJOR}-bookworm
COPY --from=build /out /
