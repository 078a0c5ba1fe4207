{{/* Egress rules that both components need. */}}

{{/* To anywhere: DNS may be a pod, or a cache in the node's network. */}}
{{- define "paternoster.egressDNS" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end }}

{{- define "paternoster.egressEngines" -}}
- to:
    - namespaceSelector: {}
      podSelector:
        matchLabels:
          app.kubernetes.io/component: engine
          app.kubernetes.io/managed-by: paternoster
  ports:
    - port: 8000
      protocol: TCP
{{- end }}
