{{/* Everything the operator may do, one rule for each resource. The same list makes the ClusterRole or the Roles. */}}
{{- define "paternoster.operatorRules" -}}
- apiGroups: [paternoster.dev]
  resources: [llmdeployments]
  # With shards, a label says which of them watches an object.
  verbs: [list, watch{{ if gt (int .Values.operator.shards) 1 }}, patch{{ end }}]
- apiGroups: [paternoster.dev]
  resources: [llmdeployments/status]
  verbs: [patch]
# Children name their LLMDeployment as an owner that blocks deletion; admission may ask for this permission.
- apiGroups: [paternoster.dev]
  resources: [llmdeployments/finalizers]
  verbs: [update]
# Server-side apply of an object that is not there yet needs create as well as patch, and a look at whose it is get.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
{{- if .Values.engine.networkPolicy.enabled }}
  verbs: [get, list, watch, create, patch]
{{- else }}
  # Those that an installation with policies left are removed, one by one.
  verbs: [get, delete]
{{- end }}
# Whose a pod is: a Deployment makes its pods by ReplicaSets.
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list, watch{{ if gt (int .Values.operator.shards) 1 }}, patch{{ end }}]
# A Secret of keys for each fleet, and those that a manifest names. Only by name: none is listed or watched.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
# Why a pod does not start is often in events about it alone. They are listed for such pods only, by name.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [list, create]
{{- end }}

{{/* Leader election and the record of names, in the release's namespace only. RBAC cannot limit create to a name. */}}
{{- define "paternoster.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames:
    - {{ include "paternoster.fullname" . }}-operator
    # Those of further shards, also where the installation has fewer now: whether a process holds them.
    {{- range untilStep 1 16 1 }}
    - {{ include "paternoster.fullname" $ }}-operator-shard-{{ . }}
    {{- end }}
  verbs: [get, update]
# The records of which fleet has which served names, and of which shard has which fleets: nobody else may write it.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create]
- apiGroups: [""]
  resources: [configmaps]
  resourceNames:
    - {{ include "paternoster.fullname" . }}-operator-names
    - {{ include "paternoster.fullname" . }}-operator-shards
  verbs: [get, update]
{{- end }}

{{/* Secrets of the release, for an operator that does not watch its namespace: it makes root keys that are not there, and
writes the copy of the routing table. */}}
{{- define "paternoster.rootKeyRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames:
    - {{ include "paternoster.gatewayKeySecret" . }}
    - {{ include "paternoster.adminKeySecret" . }}
  verbs: [get]
{{- if .Values.gateway.enabled }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "paternoster.routesSecret" . }}]
  verbs: [get, patch]
{{- end }}
{{- end }}

{{/* What people may do, for the cluster's aggregated roles. */}}
{{- define "paternoster.viewerRules" -}}
- apiGroups: [paternoster.dev]
  resources: [llmdeployments]
  verbs: [get, list, watch]
- apiGroups: [paternoster.dev]
  resources: [llmdeployments/status]
  verbs: [get]
- apiGroups: [paternoster.dev]
  resources: [llmdeployments/scale]
  verbs: [get]
{{- end }}

{{- define "paternoster.editorRules" -}}
- apiGroups: [paternoster.dev]
  resources: [llmdeployments]
  verbs: [get, list, watch, create, update, patch, delete, deletecollection]
- apiGroups: [paternoster.dev]
  resources: [llmdeployments/status]
  verbs: [get]
- apiGroups: [paternoster.dev]
  resources: [llmdeployments/scale]
  verbs: [get, update, patch]
{{- end }}
