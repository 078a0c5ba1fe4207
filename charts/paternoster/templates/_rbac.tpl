{{/* Everything the operator may do, one rule for each resource. The same list makes the ClusterRole or the Roles. */}}
{{- define "paternoster.operatorRules" -}}
- apiGroups: [paternoster.dev]
  resources: [llmdeployments]
  verbs: [list, watch]
- apiGroups: [paternoster.dev]
  resources: [llmdeployments/status]
  verbs: [patch]
# Children name their LLMDeployment as an owner that blocks deletion; admission may ask for this permission.
- apiGroups: [paternoster.dev]
  resources: [llmdeployments/finalizers]
  verbs: [update]
# Server-side apply of an object that is not there yet needs create as well as patch.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch, create, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* Leader election, in the release's namespace only. RBAC cannot limit create to a name. */}}
{{- define "paternoster.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "paternoster.fullname" . }}-operator]
  verbs: [get, update]
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
