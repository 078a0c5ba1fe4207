{{/* Egress rules that both components need. */}}

{{/* To anywhere: DNS may be a pod, or a cache in the node's network. 5353 is where OpenShift's pods listen. */}}
{{- define "paternoster.egressDNS" -}}
- ports:
    {{- range list 53 5353 }}
    - port: {{ . }}
      protocol: UDP
    - port: {{ . }}
      protocol: TCP
    {{- end }}
{{- end }}

{{/* Takes the engines' ports: 8000 is for requests, and for the operator on engines of other types; 8001 for the operator. */}}
{{- define "paternoster.egressEngines" -}}
- to:
    - namespaceSelector: {}
      podSelector:
        matchLabels:
          app.kubernetes.io/component: engine
          app.kubernetes.io/managed-by: paternoster
  ports:
    {{- range . }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
{{- end }}

{{/* Labels of the namespaces whose pods may scrape. */}}
{{- define "paternoster.scraperNamespaceLabels" -}}
{{ .Values.monitoring.namespaceLabels | default (dict "kubernetes.io/metadata.name" "monitoring") | toYaml }}
{{- end }}
