{{/* How the paths begin that clients call, as JSON: made from paternoster_contract/http/routes.py by scripts/chart. */}}
{{- define "paternoster.clientPaths" -}}
["/v1", "/v2", "/rerank", "/score", "/tokenize", "/detokenize"]
{{- end }}
