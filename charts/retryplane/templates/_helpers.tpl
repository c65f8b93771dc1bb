{{- define "retryplane.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "retryplane.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "retryplane.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "retryplane.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "retryplane.selectorLabels" -}}
app.kubernetes.io/name: {{ include "retryplane.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "retryplane.labels" -}}
{{ include "retryplane.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "retryplane.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "retryplane.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* hasRedis is "true" or empty. */ -}}
{{- define "retryplane.hasRedis" -}}
{{- if or .Values.redis.url .Values.redis.existingSecret }}true{{ end }}
{{- end }}

{{- /* check refuses values that would make pods that cannot start, or replicas that know nothing of each other. */ -}}
{{- define "retryplane.check" -}}
{{- if and (not .Values.tokens) (not .Values.existingSecret) }}
{{- fail "tokens or existingSecret: one is needed, the server does not listen beyond loopback without tokens" }}
{{- end }}
{{- if and .Values.tokens .Values.existingSecret }}
{{- fail "tokens, existingSecret: set only one of them" }}
{{- end }}
{{- if and .Values.redis.url .Values.redis.existingSecret }}
{{- fail "redis.url, redis.existingSecret: set only one of them" }}
{{- end }}
{{- if and (gt (int .Values.replicaCount) 1) (not (include "retryplane.hasRedis" .)) }}
{{- fail "replicaCount: more than 1 needs redis.url or redis.existingSecret, the store in memory is for one process" }}
{{- end }}
{{- end }}
