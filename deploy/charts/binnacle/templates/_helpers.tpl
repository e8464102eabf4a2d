{{/* The services: name of the program, port, and what the values say of it. */}}
{{- define "binnacle.services" -}}
{{- $v := .Values -}}
{{- $list := list
  (dict "name" "apiserver" "port" 6443 "values" $v.apiserver)
  (dict "name" "authn-webhook" "port" 6444 "values" $v.authnWebhook)
  (dict "name" "authz-webhook" "port" 6445 "values" $v.authzWebhook)
  (dict "name" "tokencleaner" "port" 6446 "values" $v.tokencleaner)
  (dict "name" "bootstrapsigner" "port" 6447 "values" $v.bootstrapsigner)
  (dict "name" "controllers" "port" 6449 "values" $v.controllers)
  (dict "name" "console" "port" 6448 "values" $v.console) -}}
{{- $out := list -}}
{{- range $list -}}
{{- if .values.enabled -}}
{{- $defaults := dict "service" (dict "type" "ClusterIP" "annotations" dict) "extraArgs" list "extraVolumes" list "extraVolumeMounts" list
  "podAnnotations" dict "nodeSelector" dict "tolerations" list "affinity" dict "priorityClassName" "" -}}
{{- $out = append $out (dict "name" .name "port" .port "values" (mergeOverwrite $defaults (deepCopy .values))) -}}
{{- end -}}
{{- end -}}
{{- toJson (dict "list" $out) -}}
{{- end -}}

{{/* The services that the console shows. */}}
{{- define "binnacle.shown" -}}
{{- $out := list -}}
{{- range (include "binnacle.services" . | fromJson).list -}}
{{- if ne .name "console" }}{{ $out = append $out (dict "name" .name "port" .port) }}{{ end -}}
{{- end -}}
{{- toJson (dict "list" $out) -}}
{{- end -}}

{{- define "binnacle.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: binnacle
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Values.images.tag | default .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- define "binnacle.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "binnacle.image" -}}
{{ .root.Values.images.prefix }}/{{ .name }}:{{ .root.Values.images.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- define "binnacle.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "binnacle.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The action of a probe. The API server's has a certificate, so that it does not depend on
authz-webhook, which needs a ready API server. Without etcd, reads from the watch cache continue. */}}
{{- define "binnacle.probe" -}}
{{- if eq .name "apiserver" -}}
exec: {command: [/apiserver, healthcheck, "--url=https://127.0.0.1:6443{{ .path }}{{ if eq .path "/livez" }}?exclude=etcd{{ end }}", --cacert=/certs/serving-ca.crt, --cert=/certs/apiserver-webhook-client.crt, --key=/certs/apiserver-webhook-client.key]}
{{- else -}}
httpGet: {path: {{ .path }}, port: https, scheme: HTTPS}
{{- end -}}
{{- end -}}

{{/* Where the services find the API server. */}}
{{- define "binnacle.url" -}}
{{- if .Values.apiserver.enabled -}}
https://apiserver:6443
{{- else -}}
{{ required "apiserver.url is needed where apiserver.enabled is false" .Values.apiserver.url }}
{{- end -}}
{{- end -}}

{{- define "binnacle.kubeconfig" -}}
apiVersion: v1
kind: Config
clusters:
- name: binnacle
  cluster:
    server: {{ .server }}
    certificate-authority: /certs/serving-ca.crt
users:
- name: self
  user:
    client-certificate: /certs/{{ .pair }}.crt
    client-key: /certs/{{ .pair }}.key
contexts:
- name: binnacle
  context: {cluster: binnacle, user: self}
current-context: binnacle
{{ end -}}

{{- define "binnacle.members" -}}
{{- $out := list -}}
{{- range $i := until 3 }}{{ $out = append $out (printf $.format $i) }}{{ end -}}
{{- join "," $out -}}
{{- end -}}

{{/* What is not possible is said before anything is made. */}}
{{- define "binnacle.check" -}}
{{- $v := .Values -}}
{{- if and $v.console.enabled (not (include "binnacle.shown" . | fromJson).list) }}{{ fail "console.enabled needs a service to show" }}{{ end -}}
{{- if $v.apiserver.enabled -}}
{{- if and (eq $v.etcd.mode "embedded") (gt (int $v.apiserver.replicas) 1) }}{{ fail "with etcd.mode embedded apiserver.replicas is 1" }}{{ end -}}
{{- if and (eq $v.nats.mode "none") (gt (int $v.apiserver.replicas) 1) }}{{ fail "with nats.mode none apiserver.replicas is 1" }}{{ end -}}
{{- if and (eq $v.etcd.mode "external") (not $v.etcd.endpoints) }}{{ fail "etcd.mode external needs etcd.endpoints" }}{{ end -}}
{{- if and (eq $v.nats.mode "external") (not $v.nats.servers) }}{{ fail "nats.mode external needs nats.servers" }}{{ end -}}
{{- if and (eq $v.certificates.mode "secrets") (ne .Release.Namespace "binnacle") }}{{ fail "the Secrets of `certs` are for the namespace binnacle; in another one use certificates.mode cert-manager" }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Whether RBAC in the API server decides where authz-webhook does not answer; empty if not. */}}
{{- define "binnacle.fallback" -}}
{{- if and .Values.apiserver.enabled .Values.authzWebhook.enabled .Values.authorization.fallback }}yes{{ end -}}
{{- end -}}
