# stsbench with all-MiniLM-L6-v2 inside. For the CPU:
#   docker build -t stsbench .
#   docker run --rm stsbench eval --model minilm --protocol sts --sample
# For NVIDIA GPUs (torch's wheels bring CUDA; the host needs its driver and the NVIDIA container toolkit):
#   docker build -t stsbench:cuda --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 .
#   docker run --rm --gpus all stsbench:cuda doctor
# Data, caches and runs outlive the container in volumes:
#   docker run --rm -v "$PWD/runs:/stsbench/runs" -v stsbench-cache:/home/stsbench/.cache stsbench train simcse --sample
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Torch goes first and alone: whatever depends on it then keeps the build that was chosen.
COPY constraints.txt /tmp/constraints.txt
RUN pip install --no-cache-dir --index-url "${TORCH_INDEX}" --constraint /tmp/constraints.txt torch
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    wheel="$(echo /wheels/stsbench-*.whl)" && pip install --no-cache-dir "stsbench[embedded,stores] @ file://${wheel}"
RUN useradd --create-home --uid 1000 stsbench && install --directory --owner 1000 /stsbench /stsbench/runs /home/stsbench/.cache
USER 1000
WORKDIR /stsbench
ENTRYPOINT ["stsbench"]
CMD ["--help"]
