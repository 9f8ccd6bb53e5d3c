{{- define "fmq.name" -}}
{{- if contains "fmq" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-fmq" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "fmq.labels" -}}
app.kubernetes.io/name: fmq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "fmq.operatorLabels" -}}
{{ include "fmq.labels" . }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "fmq.monitoringLabels" -}}
{{ include "fmq.labels" . }}
app.kubernetes.io/component: monitoring
{{- end }}

{{- define "fmq.testLabels" -}}
{{ include "fmq.labels" . }}
app.kubernetes.io/component: test
{{- end }}

{{- define "fmq.zookeeperLabels" -}}
{{ include "fmq.labels" . }}
app.kubernetes.io/component: quickstart-zookeeper
{{- end }}

{{- define "fmq.operatorSelector" -}}
app.kubernetes.io/name: fmq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "fmq.zookeeperSelector" -}}
app.kubernetes.io/name: fmq
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: quickstart-zookeeper
{{- end }}

{{/* "yes" if the first group is in the cluster already (a cluster without our CRDs has none). */}}
{{- define "fmq.groupThere" -}}
{{- if .Capabilities.APIVersions.Has "fmq.io/v1alpha1/BrokerGroup" -}}
{{- if lookup "fmq.io/v1alpha1" "BrokerGroup" .Release.Namespace .Values.quickstart.group.name }}yes{{ end -}}
{{- end -}}
{{- end }}

{{/* Where a first group is looked after: beside the operator, unless that only looks elsewhere. */}}
{{- define "fmq.groupsNamespace" -}}
{{- $watched := .Values.operator.watchNamespaces -}}
{{- if or (not $watched) (has .Release.Namespace $watched) }}{{ .Release.Namespace }}{{ else }}{{ first $watched }}{{ end }}
{{- end }}

{{- define "fmq.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "fmq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "fmq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "fmq.zookeeper" -}}
{{ include "fmq.name" . }}-zookeeper
{{- end }}

{{- define "fmq.zookeeperConnect" -}}
{{- $root := . -}}
{{- $name := include "fmq.zookeeper" . -}}
{{- range $n := until (int .Values.quickstart.zookeeper.replicas) -}}
{{- if $n }},{{ end }}{{ $name }}-{{ $n }}.{{ $name }}.{{ $root.Release.Namespace }}.svc:2181
{{- end -}}
{{- end }}
