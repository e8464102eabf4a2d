package serviceaccount_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/serviceaccount"
	"binnacle/services/apiserver/internal/registry"
)

// accounts maps names to the service accounts of namespace ns, as JSON.
var accounts = map[string]string{
	"default": `{"metadata":{"name":"default"},"imagePullSecrets":[{"name":"p1"},{"name":"p2"}]}`,
	"silent":  `{"metadata":{"name":"silent"},"automountServiceAccountToken":false}`,
	"loud":    `{"metadata":{"name":"loud"},"automountServiceAccountToken":true}`,
	"strict": `{"metadata":{"name":"strict","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}},
		"secrets":[{"name":"s1"},{"name":"s2"}],"imagePullSecrets":[{"name":"p1"}]}`,
	"lax":   `{"metadata":{"name":"lax","annotations":{"kubernetes.io/enforce-mountable-secrets":"false"}}}`,
	"vague": `{"metadata":{"name":"vague","annotations":{"kubernetes.io/enforce-mountable-secrets":"yes"}}}`,
}

// accountLister looks up accounts. The lookup of unknowable fails.
type accountLister struct{ t *testing.T }

func (l accountLister) ServiceAccount(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if name == "unknowable" {
		return nil, errors.New("the cache is not ready")
	}
	raw, ok := accounts[name]
	if !ok || namespace != "ns" {
		return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), name)
	}
	return read[corev1.ServiceAccount](l.t, raw), nil
}

// read decodes JSON without unknown fields.
func read[T any](t *testing.T, raw string) *T {
	t.Helper()
	v := new(T)
	d := json.NewDecoder(strings.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: got %v, want no error", raw, err)
	}
	return v
}

// plugin returns a plugin for accounts.
func plugin(t *testing.T) *serviceaccount.Plugin {
	return &serviceaccount.Plugin{Accounts: accountLister{t}}
}

// newRequest returns a request for a pod of namespace ns.
func newRequest(op admission.Operation, subresource string, object runtime.Object) *admission.Request {
	return &admission.Request{
		Operation:   op,
		Subresource: subresource,
		Namespace:   "ns",
		Name:        "p",
		Object:      object,
		Resource:    &registry.Kind{Names: registry.Names{Resource: "pods"}},
	}
}

// TestPodsGetAccountSecretsAndToken checks that a created pod gets the default account, the pull
// secrets of its account, and a token volume that each container mounts unless something is mounted
// there.
func TestPodsGetAccountSecretsAndToken(t *testing.T) {
	// N stands for the generated name of the token volume.
	const mount = `"volumeMounts":[{"name":"N","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]`
	const volume = `{"name":"N","projected":{"defaultMode":420,"sources":[
		{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},
		{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},
		{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}]}}`
	for name, test := range map[string]struct{ pod, want string }{
		"nothing": {pod: `{}`,
			want: `{"serviceAccountName":"default","imagePullSecrets":[{"name":"p1"},{"name":"p2"}]}`},
		"every container has the token": {pod: `{"initContainers":[{"name":"i"}],"containers":[{"name":"a"},{"name":"b"}],"imagePullSecrets":[{"name":"own"}]}`,
			want: `{"serviceAccountName":"default","imagePullSecrets":[{"name":"own"}],"volumes":[` + volume + `],
			"initContainers":[{"name":"i",` + mount + `}],"containers":[{"name":"a",` + mount + `},{"name":"b",` + mount + `}]}`},
		"only init containers": {pod: `{"serviceAccountName":"loud","initContainers":[{"name":"i"}]}`,
			want: `{"serviceAccountName":"loud","volumes":[` + volume + `],"initContainers":[{"name":"i",` + mount + `}]}`},
		"deprecated name of the account is ignored": {pod: `{"serviceAccount":"strict"}`,
			want: `{"serviceAccountName":"default","imagePullSecrets":[{"name":"p1"},{"name":"p2"}]}`},
		"account turns the token off": {pod: `{"serviceAccountName":"silent","containers":[{"name":"a"}]}`,
			want: `{"serviceAccountName":"silent","containers":[{"name":"a"}]}`},
		"account turns the token off, pod turns it on": {pod: `{"serviceAccountName":"silent","automountServiceAccountToken":true,"containers":[{"name":"a"}]}`,
			want: `{"serviceAccountName":"silent","automountServiceAccountToken":true,"volumes":[` + volume + `],"containers":[{"name":"a",` + mount + `}]}`},
		"account turns the token on, pod turns it off": {pod: `{"serviceAccountName":"loud","automountServiceAccountToken":false,"containers":[{"name":"a"}]}`,
			want: `{"serviceAccountName":"loud","automountServiceAccountToken":false,"containers":[{"name":"a"}]}`},
		"container has a volume at the path": {pod: `{"serviceAccountName":"loud","containers":[{"name":"a","volumeMounts":[{"name":"own","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}`,
			want: `{"serviceAccountName":"loud","containers":[{"name":"a","volumeMounts":[{"name":"own","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}`},
		"one of two containers has a volume at the path": {pod: `{"serviceAccountName":"loud","containers":[{"name":"a","volumeMounts":[{"name":"own","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]},{"name":"b"}]}`,
			want: `{"serviceAccountName":"loud","volumes":[` + volume + `],"containers":[{"name":"a","volumeMounts":[{"name":"own","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]},{"name":"b",` + mount + `}]}`},
		"container has a volume at another path": {pod: `{"serviceAccountName":"loud","volumes":[{"name":"own"}],"containers":[{"name":"a","volumeMounts":[{"name":"own","mountPath":"/var/run"}]}]}`,
			want: `{"serviceAccountName":"loud","volumes":[{"name":"own"},` + volume + `],"containers":[{"name":"a","volumeMounts":[{"name":"own","mountPath":"/var/run"},
			{"name":"N","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}`},
		"token volumes exist": {pod: `{"serviceAccountName":"loud","volumes":[{"name":"kube-api-access-x"},{"name":"kube-api-access-y"}],"containers":[{"name":"a"}]}`,
			want: `{"serviceAccountName":"loud","volumes":[{"name":"kube-api-access-x"},{"name":"kube-api-access-y"}],"containers":[{"name":"a",` + strings.Replace(mount, "N", "kube-api-access-x", 1) + `}]}`},
	} {
		pod := &corev1.Pod{Spec: *read[corev1.PodSpec](t, test.pod)}
		if err := plugin(t).Admit(t.Context(), newRequest(admission.Create, "", pod)); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
			continue
		}
		want := read[corev1.PodSpec](t, strings.ReplaceAll(test.want, `"N"`, `"`+tokenVolume(pod)+`"`))
		want.DeprecatedServiceAccount = want.ServiceAccountName
		if got, want := specJSON(t, pod.Spec), specJSON(t, *want); got != want {
			t.Errorf("%s: got pod\n%s\nwant\n%s", name, got, want)
		}
	}
}

// tokenVolume returns the generated name of the token volume of a pod.
func tokenVolume(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, "kube-api-access-") && len(v.Name) == len("kube-api-access-")+5 && v.Projected != nil {
			return v.Name
		}
	}
	return "none"
}

// specJSON returns the specification of a pod as JSON.
func specJSON(t *testing.T, spec corev1.PodSpec) string {
	t.Helper()
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestOtherRequestsAreUnaffected checks that requests other than the creation of a pod are admitted.
func TestOtherRequestsAreUnaffected(t *testing.T) {
	another := newRequest(admission.Create, "", &corev1.Pod{})
	another.Resource = &registry.Kind{Names: registry.Names{Group: "metrics.k8s.io", Resource: "pods"}}
	for name, req := range map[string]*admission.Request{
		"other group":            another,
		"binding":                newRequest(admission.Create, "binding", &corev1.Pod{}),
		"object of another type": newRequest(admission.Create, "", &corev1.Binding{}),
		"update":                 newRequest(admission.Update, "", &corev1.Pod{}),
		"update of the status":   newRequest(admission.Update, "status", &corev1.Pod{}),
		"delete":                 newRequest(admission.Delete, "", nil),
		"connect":                newRequest(admission.Connect, "exec", &corev1.PodExecOptions{}),
		"update of a pod with a secret that the account does not list": newRequest(admission.Update, "", &corev1.Pod{Spec: *read[corev1.PodSpec](t, `{"serviceAccountName":"strict","volumes":[{"name":"v","secret":{"secretName":"other"}}]}`)}),
	} {
		if err := plugin(t).Validate(t.Context(), req); err != nil {
			t.Errorf("%s, Validate: got error %v, want none", name, err)
		}
		if err := plugin(t).Admit(t.Context(), req); err != nil {
			t.Errorf("%s, Admit: got error %v, want none", name, err)
		}
		if pod, ok := req.Object.(*corev1.Pod); ok &&
			(pod.Spec.ServiceAccountName == "default" || pod.Spec.DeprecatedServiceAccount != "") {
			t.Errorf("%s: got pod %+v, want it unchanged", name, pod.Spec)
		}
	}
	// Ephemeral containers are restricted when they are stored, and change nothing else.
	pod := &corev1.Pod{Spec: *read[corev1.PodSpec](t, `{"ephemeralContainers":[{"name":"e"}]}`)}
	if err := plugin(t).Admit(t.Context(), newRequest(admission.Update, "ephemeralcontainers", pod)); err != nil ||
		pod.Spec.ServiceAccountName != "" {
		t.Errorf("ephemeral containers: got error %v and pod %+v, want no error and no account", err, pod.Spec)
	}
}

// TestUnusableAccountOrSecretIsRejected checks that a pod is rejected if its account is missing, or
// has the annotation enforce-mountable-secrets and does not list the secrets of the pod.
func TestUnusableAccountOrSecretIsRejected(t *testing.T) {
	const ephemeral = "ephemeralcontainers"
	secret := func(kind string) string { return `volume with secret.secretName="` + kind + `"` }
	for name, test := range map[string]struct{ subresource, pod, want string }{
		"missing account": {subresource: "", pod: `{"serviceAccountName":"absent"}`,
			want: `error looking up service account ns/absent: serviceaccount "absent" not found`},
		"failing lookup": {subresource: "", pod: `{"serviceAccountName":"unknowable"}`,
			want: `error looking up service account ns/unknowable: the cache is not ready`},
		"invalid account": {subresource: "", pod: `{"serviceAccountName":"a/b"}`,
			want: `error looking up service account ns/a/b: invalid resource name "a/b": [may not contain '/']`},

		"listed secret": {subresource: "",
			pod: `{"serviceAccountName":"strict","volumes":[{"name":"v","secret":{"secretName":"s2"}},{"name":"w"}]}`, want: ""},
		"secret that is not listed": {subresource: "",
			pod:  `{"serviceAccountName":"strict","volumes":[{"name":"v","secret":{"secretName":"s1"}},{"name":"w","secret":{"secretName":"x"}}]}`,
			want: secret("x") + " is not allowed because service account strict does not reference that secret"},
		"annotation is false":         {subresource: "", pod: `{"serviceAccountName":"lax","volumes":[{"name":"w","secret":{"secretName":"x"}}]}`, want: ""},
		"annotation is not a boolean": {subresource: "", pod: `{"serviceAccountName":"vague","volumes":[{"name":"w","secret":{"secretName":"x"}}]}`, want: ""},
		"no annotation":               {subresource: "", pod: `{"serviceAccountName":"loud","volumes":[{"name":"w","secret":{"secretName":"x"}}]}`, want: ""},
		"projected secret": {subresource: "",
			pod:  `{"serviceAccountName":"strict","volumes":[{"name":"w","projected":{"sources":[{"secret":{"name":"x"}}]}}]}`,
			want: ""},
		"variables from listed secrets": {subresource: "",
			pod:  `{"serviceAccountName":"strict","containers":[{"name":"c","env":[{"name":"E","value":"v"},{"name":"F","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"G","valueFrom":{"secretKeyRef":{"name":"s1","key":"k"}}}],"envFrom":[{"configMapRef":{"name":"x"}},{"secretRef":{"name":"s2"}}]}]}`,
			want: ""},
		"variable from a secret that is not listed": {subresource: "",
			pod:  `{"serviceAccountName":"strict","containers":[{"name":"b"},{"name":"c","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"x","key":"k"}}}]}]}`,
			want: `container c with envVar E referencing secret.secretName="x" is not allowed because service account strict does not reference that secret`},
		"variables": {subresource: "",
			pod:  `{"serviceAccountName":"strict","containers":[{"name":"c","envFrom":[{"secretRef":{"name":"x"}}]}]}`,
			want: `container c with envFrom referencing secret.secretName="x" is not allowed because service account strict does not reference that secret`},
		"init container, variable from a secret that is not listed": {subresource: "",
			pod:  `{"serviceAccountName":"strict","initContainers":[{"name":"c","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"x","key":"k"}}}]}]}`,
			want: `init container c with envVar E referencing secret.secretName="x" is not allowed because service account strict does not reference that secret`},
		"init container, envFrom with a secret that is not listed": {subresource: "",
			pod:  `{"serviceAccountName":"strict","initContainers":[{"name":"c","envFrom":[{"secretRef":{"name":"x"}}]}]}`,
			want: `init container c with envFrom referencing secret.secretName="x" is not allowed because service account strict does not reference that secret`},
		"listed pull secret": {subresource: "", pod: `{"serviceAccountName":"strict","imagePullSecrets":[{"name":"p1"}]}`, want: ""},
		"pull secret that is not listed": {subresource: "", pod: `{"serviceAccountName":"strict","imagePullSecrets":[{"name":"p1"},{"name":"s1"}]}`,
			want: `imagePullSecrets[1].name="s1" is not allowed because service account strict does not reference that imagePullSecret`},
		"pull secret as a volume": {subresource: "",
			pod:  `{"serviceAccountName":"strict","volumes":[{"name":"w","secret":{"secretName":"p1"}}]}`,
			want: secret("p1") + " is not allowed"},

		"ephemeral container, listed secrets": {subresource: ephemeral,
			pod:  `{"serviceAccountName":"strict","ephemeralContainers":[{"name":"c","env":[{"name":"E","value":"v"},{"name":"G","valueFrom":{"secretKeyRef":{"name":"s1","key":"k"}}}],"envFrom":[{"secretRef":{"name":"s2"}}]}]}`,
			want: ""},
		"ephemeral container, variable from a secret that is not listed": {subresource: ephemeral,
			pod:  `{"serviceAccountName":"strict","ephemeralContainers":[{"name":"c","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"x","key":"k"}}}]}]}`,
			want: `ephemeral container c with envVar E referencing secret.secretName="x" is not allowed because service account strict does not reference that secret`},
		"ephemeral container, envFrom with a secret that is not listed": {subresource: ephemeral,
			pod:  `{"serviceAccountName":"strict","ephemeralContainers":[{"name":"b"},{"name":"c","envFrom":[{"secretRef":{"name":"x"}}]}]}`,
			want: `ephemeral container c with envFrom referencing secret.secretName="x" is not allowed because service account strict does not reference that secret`},
		"ephemeral containers, volumes of the pod are not checked": {subresource: ephemeral,
			pod:  `{"serviceAccountName":"strict","volumes":[{"name":"w","secret":{"secretName":"x"}}],"imagePullSecrets":[{"name":"x"}]}`,
			want: ""},
		"ephemeral container, annotation is false": {subresource: ephemeral,
			pod: `{"serviceAccountName":"lax","ephemeralContainers":[{"name":"c","envFrom":[{"secretRef":{"name":"x"}}]}]}`, want: ""},
		"ephemeral container, no account": {subresource: ephemeral, pod: `{"ephemeralContainers":[{"name":"c"}]}`,
			want: "no service account specified for pod ns/p"},
		"ephemeral containers, missing account": {subresource: ephemeral, pod: `{"serviceAccountName":"absent"}`,
			want: `error looking up service account ns/absent: serviceaccount "absent" not found`},
		"ephemeral containers, lookup fails": {subresource: ephemeral, pod: `{"serviceAccountName":"unknowable"}`,
			want: `error looking up service account ns/unknowable: the cache is not ready`},
	} {
		op := admission.Create
		if test.subresource != "" {
			op = admission.Update
		}
		pod := func() *corev1.Pod {
			p := &corev1.Pod{Spec: *read[corev1.PodSpec](t, test.pod)}
			p.Name = "p"
			return p
		}
		if op == admission.Create {
			requireForbidden(t, name+", Admit", plugin(t).Admit(t.Context(), newRequest(op, test.subresource, pod())), test.want)
		}
		requireForbidden(t, name, plugin(t).Validate(t.Context(), newRequest(op, test.subresource, pod())), test.want)
	}
	// A later plugin may have removed the name of the account.
	requireForbidden(
		t,
		"no account",
		plugin(t).Validate(t.Context(), newRequest(admission.Create, "", &corev1.Pod{})),
		"no service account specified for pod ns/",
	)
	whole := read[corev1.PodSpec](t, `{"serviceAccountName":"strict","volumes":[{"name":"w","secret":{"secretName":"x"}}]}`)
	requireForbidden(
		t,
		"create in the subresource ephemeralcontainers",
		plugin(t).Validate(t.Context(), newRequest(admission.Create, ephemeral, &corev1.Pod{Spec: *whole})),
		secret("x"),
	)
	inOtherNamespace := newRequest(admission.Create, "", &corev1.Pod{})
	inOtherNamespace.Namespace = "other"
	requireForbidden(
		t,
		"other namespace",
		plugin(t).Admit(t.Context(), inOtherNamespace),
		`error looking up service account other/default: serviceaccount "default" not found`,
	)
}

// requireForbidden checks that an error is Forbidden with a text that begins with want after the
// name of the pod, or that there is none if want is empty.
func requireForbidden(t *testing.T, name string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: got error %v, want none", name, err)
	case want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `pods "p" is forbidden: `+want)):
		t.Errorf("%s: got error %v, want a Forbidden error that contains %q", name, err, want)
	}
}

// TestMirrorPodMayNotReferenceAccountSecretsOrTokens checks that a mirror pod may use neither
// service accounts nor secrets nor tokens.
func TestMirrorPodMayNotReferenceAccountSecretsOrTokens(t *testing.T) {
	for name, test := range map[string]struct{ pod, want string }{
		"nothing": {pod: `{"containers":[{"name":"c"}],"volumes":[{"name":"v"},{"name":"w","projected":{"sources":[{"configMap":{"name":"m"}}]}}]}`,
			want: ""},
		"an account":    {pod: `{"serviceAccountName":"default"}`, want: "a mirror pod may not reference service accounts"},
		"a secret":      {pod: `{"volumes":[{"name":"v","secret":{"secretName":"s"}}]}`, want: "a mirror pod may not reference secrets"},
		"a pull secret": {pod: `{"imagePullSecrets":[{"name":"s"}]}`, want: "a mirror pod may not reference secrets"},
		"variables": {pod: `{"containers":[{"name":"c","envFrom":[{"secretRef":{"name":"s"}}]}]}`,
			want: "a mirror pod may not reference secrets"},
		"an unnamed one": {pod: `{"containers":[{"name":"c","envFrom":[{"secretRef":{}}]}]}`, want: ""},
		"a token": {pod: `{"volumes":[{"name":"v","projected":{"sources":[{"configMap":{"name":"m"}},{"serviceAccountToken":{"path":"t"}}]}}]}`,
			want: "a mirror pod may not use ServiceAccountToken volume projections"},
	} {
		pod := &corev1.Pod{Spec: *read[corev1.PodSpec](t, test.pod)}
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
		before := pod.DeepCopy()
		requireForbidden(t, name, plugin(t).Admit(t.Context(), newRequest(admission.Create, "", pod)), test.want)
		requireForbidden(t, name+", Validate", plugin(t).Validate(t.Context(), newRequest(admission.Create, "", pod)), test.want)
		if got, want := specJSON(t, pod.Spec), specJSON(t, before.Spec); got != want {
			t.Errorf("%s: got changed pod %s, want %s", name, got, want)
		}
	}
}
