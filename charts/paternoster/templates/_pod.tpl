{{/* What the pods of both components have in common. Each takes root, component and values. */}}

{{/* An image by digest, or by tag. Takes root and image. */}}
{{- define "paternoster.image" -}}
{{- $repository := list .root.Values.global.imageRegistry .image.repository | compact | join "/" -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "paternoster.podMetadata" -}}
labels:
  {{- include "paternoster.podLabels" . | nindent 2 }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "paternoster.podBase" -}}
enableServiceLinks: false
{{- with .root.Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "paternoster.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
  readOnlyRootFilesystem: true
{{- end }}

{{- define "paternoster.scheduling" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "paternoster.topologySpread" -}}
{{- with .values.topologySpread }}
{{- if .enabled }}
topologySpreadConstraints:
  - topologyKey: {{ .topologyKey }}
    maxSkew: {{ .maxSkew | int }}
    whenUnsatisfiable: {{ .whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "paternoster.selectorLabels" $ | nindent 8 }}
    # Old pods of a rollout do not count.
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- end }}

{{/* A PodDisruptionBudget over a component's pods. */}}
{{- define "paternoster.pdb" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "paternoster.fullname" .root }}-{{ .component }}
  namespace: {{ include "paternoster.namespace" .root }}
  {{- include "paternoster.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  # A pod that does not work must not hold up a drain.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "paternoster.selectorLabels" . | nindent 6 }}
{{- end }}

{{- define "paternoster.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "paternoster.serviceAccountName" . }}
  namespace: {{ include "paternoster.namespace" .root }}
  {{- include "paternoster.metadata" (set . "own" .values.serviceAccount) | nindent 2 }}
# The operator's pods ask for the token themselves; nothing else that names this account gets one.
automountServiceAccountToken: false
{{- end }}
