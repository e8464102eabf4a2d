{{/* The certificates that each program shows, as deploy/certs/specs.go has them:
program, file, CA, common name, organization, usages, and the service whose names a
serving certificate has. */}}
{{- define "binnacle.pairs" -}}
- {program: apiserver, file: apiserver, ca: serving-ca, cn: kube-apiserver, usages: [server auth], names: apiserver}
- {program: apiserver, file: apiserver-webhook-client, ca: client-ca, cn: "system:binnacle:apiserver", org: system:binnacle, usages: [client auth]}
{{- if ne .Values.etcd.mode "embedded" }}
- {program: apiserver, file: apiserver-etcd-client, ca: etcd-ca, cn: apiserver, usages: [client auth]}
{{- end }}
{{- if ne .Values.nats.mode "none" }}
- {program: apiserver, file: apiserver-nats-client, ca: nats-ca, cn: apiserver, usages: [client auth]}
{{- end }}
- {program: apiserver, file: apiserver-proxy-client, ca: front-proxy-ca, cn: front-proxy-client, usages: [client auth]}
- {program: apiserver, file: apiserver-kubelet-client, ca: kubelet-ca, cn: kube-apiserver-kubelet-client, usages: [client auth]}
{{- range list "authn-webhook" "authz-webhook" "tokencleaner" "bootstrapsigner" "console" "controllers" }}
- {program: {{ . }}, file: {{ . }}, ca: serving-ca, cn: {{ . }}, usages: [server auth], names: {{ . }}}
- {program: {{ . }}, file: {{ . }}-client, ca: client-ca, cn: "system:binnacle:{{ . }}", org: system:binnacle, usages: [client auth]}
{{- end }}
- {program: etcd, file: etcd, ca: etcd-ca, cn: etcd, usages: [server auth, client auth], names: etcd}
- {program: nats, file: nats, ca: nats-ca, cn: nats, usages: [server auth, client auth], names: nats}
- {program: admin, file: admin, ca: client-ca, cn: binnacle-admin, org: system:masters, usages: [client auth]}
- {program: monitoring, file: monitoring, ca: client-ca, cn: binnacle-monitoring, org: system:monitoring, usages: [client auth]}
{{- end -}}

{{/* The programs that there are. */}}
{{- define "binnacle.programs" -}}
{{- $out := list -}}
{{- range (include "binnacle.services" . | fromJson).list }}{{ $out = append $out .name }}{{ end -}}
{{- if .Values.apiserver.enabled -}}
{{- if eq .Values.etcd.mode "cluster" }}{{ $out = append $out "etcd" }}{{ end -}}
{{- if eq .Values.nats.mode "cluster" }}{{ $out = append $out "nats" }}{{ end -}}
{{- $out = append $out "admin" -}}
{{- end -}}
{{- if .Values.serviceMonitors.enabled }}{{ $out = append $out "monitoring" }}{{ end -}}
{{- toJson (dict "list" $out) -}}
{{- end -}}

{{/* The volume of a program's certificates, with the same files in each mode. */}}
{{- define "binnacle.certs" -}}
{{- if eq .root.Values.certificates.mode "secrets" -}}
secret: {secretName: {{ .name }}-certs, defaultMode: 0440}
{{- else -}}
projected:
  defaultMode: 0440
  sources:
  {{- $cas := list }}
  {{- range include "binnacle.pairs" .root | fromYamlArray }}
  {{- if eq .program $.name }}
  - secret:
      name: {{ .file }}
      items:
      - {key: tls.crt, path: {{ .file }}.crt}
      - {key: tls.key, path: {{ .file }}.key}
      {{- if not (has .ca $cas) }}
      {{- $cas = append $cas .ca }}
      - {key: ca.crt, path: {{ .ca }}.crt}
      {{- end }}
  {{- end }}
  {{- end }}
  {{- if eq .name "apiserver" }}
  - secret:
      name: service-account-key
      items:
      - {key: tls.key, path: sa.key}
  {{- else if eq .name "authn-webhook" }}
  # The certificate has the public key alone.
  - secret:
      name: service-account-key
      items:
      - {key: tls.crt, path: sa.pub}
  {{- end }}
{{- end -}}
{{- end -}}
