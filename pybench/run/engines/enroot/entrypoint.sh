# Runs inside in place of the image's entrypoint.
cd /tmp && exec "$@"
