{{/* The command lines. */}}
{{- define "binnacle.args" -}}
{{- $v := .root.Values -}}
- --tls-cert-file=/certs/{{ .name }}.crt
- --tls-private-key-file=/certs/{{ .name }}.key
- --client-ca-file=/certs/client-ca.crt
- --logging-format=json
{{ if eq .name "apiserver" -}}
{{ include "binnacle.args.apiserver" . }}
{{- else -}}
- --kubeconfig=/etc/binnacle/{{ .name }}.kubeconfig
{{- end }}
{{- if has .name (list "authn-webhook" "authz-webhook") }}
- --allowed-client-names=system:binnacle:apiserver
- --shutdown-delay-duration=5s
{{- end }}
{{- if eq .name "console" }}
{{- range (include "binnacle.shown" .root | fromJson).list }}
- --target={{ .name }}=https://{{ .name }}-replicas:{{ .port }}
{{- end }}
{{- end }}
{{- if eq .name "authn-webhook" }}
- --enable-bootstrap-token-auth
- --service-account-issuer={{ $v.apiserver.issuer }}
- --service-account-key-file=/certs/sa.pub
- --api-audiences={{ $v.apiserver.issuer }}
{{- end }}
{{- end -}}

{{- define "binnacle.args.apiserver" -}}
{{- $v := .root.Values -}}
- --service-account-issuer={{ $v.apiserver.issuer }}
- --service-account-signing-key-file=/certs/sa.key
- --api-audiences={{ $v.apiserver.issuer }}
- --service-cluster-ip-range={{ $v.apiserver.serviceRange }}
- --enable-admission-plugins=NodeRestriction
- --shutdown-delay-duration=10s
- --shutdown-send-retry-after
- --requestheader-client-ca-file=/certs/front-proxy-ca.crt
- --requestheader-allowed-names=front-proxy-client
- --requestheader-username-headers=X-Remote-User
- --requestheader-group-headers=X-Remote-Group
- --requestheader-extra-headers-prefix=X-Remote-Extra-
- --proxy-client-cert-file=/certs/apiserver-proxy-client.crt
- --proxy-client-key-file=/certs/apiserver-proxy-client.key
- --kubelet-certificate-authority=/certs/kubelet-ca.crt
- --kubelet-client-certificate=/certs/apiserver-kubelet-client.crt
- --kubelet-client-key=/certs/apiserver-kubelet-client.key
{{- if $v.authnWebhook.enabled }}
- --authentication-token-webhook-config-file=/etc/binnacle/apiserver-authn-webhook.kubeconfig
- --authentication-token-webhook-version=v1
{{- else }}
- --enable-bootstrap-token-auth
- --service-account-key-file=/certs/sa.key
{{- end }}
{{- if include "binnacle.fallback" .root }}
- --authorization-config=/etc/authorization/authorization.yaml
{{- else if $v.authzWebhook.enabled }}
- --authorization-mode=Webhook
- --authorization-webhook-config-file=/etc/binnacle/apiserver-authz-webhook.kubeconfig
- --authorization-webhook-version=v1
{{- else }}
- --authorization-mode=Node,RBAC
{{- end }}
{{- if eq $v.etcd.mode "embedded" }}
- --data-dir=/data/etcd
{{- else }}
{{- if eq $v.etcd.mode "cluster" }}
- --etcd-servers={{ include "binnacle.members" (dict "format" (printf "https://etcd-%%d.etcd.%s.svc:2379" .root.Release.Namespace)) }}
{{- else }}
- --etcd-servers={{ join "," $v.etcd.endpoints }}
{{- end }}
- --etcd-cafile=/certs/etcd-ca.crt
- --etcd-certfile=/certs/apiserver-etcd-client.crt
- --etcd-keyfile=/certs/apiserver-etcd-client.key
{{- end }}
{{- if ne $v.nats.mode "none" }}
{{- if eq $v.nats.mode "cluster" }}
- --nats-servers={{ include "binnacle.members" (dict "format" (printf "tls://nats-%%d.nats.%s.svc:4222" .root.Release.Namespace)) }}
{{- else }}
- --nats-servers={{ join "," $v.nats.servers }}
{{- end }}
- --nats-ca-file=/certs/nats-ca.crt
- --nats-cert-file=/certs/apiserver-nats-client.crt
- --nats-key-file=/certs/apiserver-nats-client.key
{{- end }}
- --cluster-id={{ $v.apiserver.clusterID }}
{{- if gt (int $v.apiserver.replicas) 1 }}
- --goaway-chance=0.001
{{- end }}
{{- end -}}
