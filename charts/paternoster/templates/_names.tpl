{{/* Names and labels. */}}

{{- define "paternoster.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 48 | trimSuffix "-" }}
{{- end }}

{{/* Prefix of every name. 48 characters leave room for the longest suffix in a name of 63. */}}
{{- define "paternoster.fullname" -}}
{{- $name := include "paternoster.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 48 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* Name of the operator's Deployment, or of that of one shard. Takes root and shard. */}}
{{- define "paternoster.operatorName" -}}
{{ include "paternoster.fullname" .root }}-{{ ternary "operator" (printf "shard-%d" (int .shard)) (eq (int .root.Values.operator.shards) 1) }}
{{- end }}

{{- define "paternoster.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* The namespaces the operator watches in the namespaced scope, as JSON. */}}
{{- define "paternoster.watchNamespaces" -}}
{{ .Values.watchNamespaces | default (list (include "paternoster.namespace" .)) | uniq | toJson }}
{{- end }}

{{/* Labels that select a component's pods. Takes root and component. */}}
{{- define "paternoster.selectorLabels" -}}
app.kubernetes.io/name: {{ include "paternoster.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels and annotations of an object: its own, the chart's, its component's, those of all objects; the first wins.
Takes root; of an object of a component, component and values; own, the object's labels and annotations, where values
have some; annotations, which the chart sets. */}}
{{- define "paternoster.metadata" -}}
{{- $own := .own | default dict -}}
labels:
  {{- merge (deepCopy ($own.labels | default dict)) (include "paternoster.labels" . | fromYaml) | toYaml | nindent 2 }}
{{- $component := .values | default dict }}
{{- $annotations := merge (deepCopy ($own.annotations | default dict)) (.annotations | default dict) }}
{{- $common := .root.Values.global.commonAnnotations | default dict }}
{{- $annotations = merge $annotations ($component.annotations | default dict) $common }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "paternoster.labels" -}}
{{- $labels := dict
  "app.kubernetes.io/name" (include "paternoster.name" .root)
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/managed-by" .root.Release.Service
  "app.kubernetes.io/part-of" "paternoster"
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63)
-}}
{{- if .component }}{{ $_ := set $labels "app.kubernetes.io/component" .component }}{{ end -}}
{{- $component := .values | default dict -}}
{{- $common := .root.Values.global.commonLabels | default dict -}}
{{ merge $labels ($component.labels | default dict) $common | toYaml }}
{{- end }}

{{/* Labels of a component's pods: no version, so that an upgrade that changes no pod restarts none. Takes shard, too: the
label of a shard's pods. */}}
{{- define "paternoster.podLabels" -}}
{{- $own := merge (include "paternoster.selectorLabels" . | fromYaml) (.shard | default dict) -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "paternoster" -}}
{{ merge $own (.values.podLabels | default dict) (.root.Values.global.commonLabels | default dict) | toYaml }}
{{- end }}

{{/* Scheme of the gateway, which is also the name of the port that clients use. */}}
{{- define "paternoster.gatewayScheme" -}}
{{ ternary "https" "http" .Values.gateway.tls.enabled }}
{{- end }}

{{/* URL of the gateway inside the cluster. */}}
{{- define "paternoster.gatewayURL" -}}
{{- $scheme := include "paternoster.gatewayScheme" . -}}
{{- $port := .Values.gateway.service.port | int -}}
{{- $shown := ternary "" (printf ":%d" $port) (eq $port (get (dict "http" 80 "https" 443) $scheme)) -}}
{{ $scheme }}://{{ include "paternoster.fullname" . }}-gateway.{{ include "paternoster.namespace" . }}.svc{{ $shown }}
{{- end }}

{{/* Secret with the gateway's certificate. */}}
{{- define "paternoster.tlsSecret" -}}
{{- $tls := .Values.gateway.tls -}}
{{- if not (or $tls.secretName $tls.certManager.enabled) -}}
{{- fail "gateway.tls: name a Secret (secretName), or have one made (certManager.enabled)" -}}
{{- end -}}
{{ $tls.secretName | default (printf "%s-gateway-tls" (include "paternoster.fullname" .)) }}
{{- end }}

{{/* Name of a component's service account. Takes root, component and values. */}}
{{- define "paternoster.serviceAccountName" -}}
{{- $name := printf "%s-%s" (include "paternoster.fullname" .root) .component -}}
{{- if .values.serviceAccount.create -}}
{{ .values.serviceAccount.name | default $name }}
{{- else -}}
{{ .values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{/* Secrets of the root keys: the user's, or those that the operator makes. */}}
{{- define "paternoster.gatewayKeySecret" -}}
{{ .Values.keys.gatewaySecret | default (printf "%s-gateway-key" (include "paternoster.fullname" .)) }}
{{- end }}

{{- define "paternoster.adminKeySecret" -}}
{{ .Values.keys.adminSecret | default (printf "%s-admin-key" (include "paternoster.fullname" .)) }}
{{- end }}

{{/* Secret with the copy of the routing table. */}}
{{- define "paternoster.routesSecret" -}}
{{ include "paternoster.fullname" . }}-routes
{{- end }}

{{/* Labels as name=value,...: how the operator's flags take them. */}}
{{- define "paternoster.labelFlag" -}}
{{- $pairs := list -}}
{{- range $name, $value := . }}{{ $pairs = append $pairs (printf "%s=%s" $name (toString $value)) }}{{ end -}}
{{ $pairs | join "," }}
{{- end }}
