#!/bin/bash
# Spark on Kubernetes starts its image with the word driver or executor; else it is a job's options,
# run in this one container: docker run fmq/spark check /data
set -euo pipefail
case ${1:-} in
driver)
  shift
  bind=${SPARK_DRIVER_BIND_ADDRESS:-127.0.0.1}
  exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$bind" \
    --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$bind" --deploy-mode client "$@"
  ;;
executor)
  mapfile -t options < <(env | grep '^SPARK_JAVA_OPT_' | sort -t_ -k4 -n | sed 's/[^=]*=//')
  exec java ${options[@]+"${options[@]}"} -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
*)
  exec python -m fmqspark "$@"
  ;;
esac
