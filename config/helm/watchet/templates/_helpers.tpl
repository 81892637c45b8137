{{/* The name of the objects: that of the release, with the chart's unless it is part of it. */}}
{{- define "watchet.name" -}}
{{- if contains "watchet" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-watchet" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "watchet.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "watchet.name" .) -}}
{{- end -}}

{{- define "watchet.selector" -}}
app.kubernetes.io/name: watchet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "watchet.labels" -}}
{{ include "watchet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The names that clients in the cluster use. */}}
{{- define "watchet.tlsSans" -}}
{{- $name := include "watchet.name" . -}}
{{- $namespace := .Release.Namespace -}}
{{- $names := list $name (printf "%s.%s" $name $namespace) (printf "%s.%s.svc" $name $namespace) (printf "%s.%s.svc.cluster.local" $name $namespace) -}}
{{- concat $names .Values.tlsSans | join "," -}}
{{- end -}}
