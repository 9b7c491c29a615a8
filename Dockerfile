# semcom with torch for processors (1.5 GB; with CUDA 6 GB: --build-arg INDEX=https://pypi.org/simple).
#   docker build -t semcom . && docker run --rm -v "$PWD:/work" semcom train fedcl --out runs/first
FROM python:3.12-slim
ARG INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE constraints.txt ./
COPY semcom semcom
COPY channels channels
COPY experiments experiments
COPY figures figures
RUN pip install --no-cache-dir --extra-index-url "$INDEX" -c constraints.txt '.[report]' && rm -rf /src
ENV OMP_NUM_THREADS=1
WORKDIR /work
ENTRYPOINT ["semcom"]
CMD ["--help"]
