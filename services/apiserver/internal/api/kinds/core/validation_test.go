package core_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
)

const badQualified = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"

// TestCreate covers the errors that a client gets for a new object.
func TestCreate(t *testing.T) {
	for _, test := range []struct{ name, resource, object, want string }{
		{name: "whole", resource: "configmaps", object: "metadata: {name: a, namespace: ns}\ndata: {k: v}\nbinaryData: {b: AAEC}"},
		{
			name: "one key in both data and binaryData, and a bad key", resource: "configmaps",
			object: "metadata: {name: a, namespace: ns}\ndata: {both: z}\nbinaryData: {both: aGk=, ..: aGk=}",
			want: `data[both]: Invalid value: "both": duplicate of key present in binaryData` + "\n" +
				`binaryData[..]: Invalid value: "..": must not be '..'`,
		},
		{
			name: "a key that is too long", resource: "configmaps",
			object: "metadata: {name: a, namespace: ns}\ndata: {? " + strings.Repeat("a", 254) + " : x}",
			want:   "data[" + strings.Repeat("a", 254) + `]: Invalid value: "` + strings.Repeat("a", 254) + `": must be no more than 253 characters`,
		},
		{
			name:     "metadata comes first",
			resource: "configmaps",
			object:   "metadata: {name: A, namespace: ns, finalizers: [x]}\ndata: {..: x}",
			want: `metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')` + "\n" +
				`metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified` + "\n" +
				`data[..]: Invalid value: "..": must not be '..'`,
		},
		{name: "of any type", resource: "secrets", object: "metadata: {name: a, namespace: ns}\ntype: example.com/x\ndata: {k: AAEC}"},
		{name: "a bad key", resource: "secrets", object: "metadata: {name: a, namespace: ns}\ndata: {a b: AAEC}",
			want: `data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`},
		{
			name: "TLS without its key", resource: "secrets",
			object: "metadata: {name: t, namespace: ns}\ntype: kubernetes.io/tls\nstringData: {tls.crt: x}",
			want:   "data[tls.key]: Required value",
		},
		{
			name: "docker config that is not JSON", resource: "secrets",
			object: "metadata: {name: t, namespace: ns}\ntype: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: x}",
			want:   `data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character 'x' looking for beginning of value`,
		},
		{name: "docker config without its key", resource: "secrets",
			object: "metadata: {name: t, namespace: ns}\ntype: kubernetes.io/dockercfg", want: "data[.dockercfg]: Required value"},
		{name: "docker config", resource: "secrets",
			object: "metadata: {name: t, namespace: ns}\ntype: kubernetes.io/dockercfg\nstringData: {.dockercfg: '{}'}"},
		{
			name: "basic auth with neither user nor password", resource: "secrets",
			object: "metadata: {name: t, namespace: ns}\ntype: kubernetes.io/basic-auth",
			want:   "data[username]: Required value\ndata[password]: Required value",
		},
		{name: "basic auth with an empty password", resource: "secrets",
			object: "metadata: {name: t, namespace: ns}\ntype: kubernetes.io/basic-auth\ndata: {password: ''}"},
		{name: "SSH auth with an empty key", resource: "secrets",
			object: "metadata: {name: t, namespace: ns}\ntype: kubernetes.io/ssh-auth\ndata: {ssh-privatekey: ''}",
			want:   "data[ssh-privatekey]: Required value"},
		{
			name: "service account token without its annotation", resource: "secrets",
			object: "metadata: {name: t, namespace: ns}\ntype: kubernetes.io/service-account-token",
			want:   "metadata.annotations[kubernetes.io/service-account.name]: Required value",
		},
		{name: "service account token", resource: "secrets",
			object: "metadata: {name: t, namespace: ns, annotations: {kubernetes.io/service-account.name: x}}\ntype: kubernetes.io/service-account-token"},
		{name: "label name", resource: "namespaces", object: "metadata: {name: a.x}",
			want: `metadata.name: Invalid value: "a.x": must not contain dots`},
		{
			name: "bad finalizers", resource: "namespaces", object: "metadata: {name: a}\nspec: {finalizers: [not ok, nodomain]}",
			want: `spec.finalizers: Invalid value: "not ok": ` + badQualified + "\n" +
				`spec.finalizers: Invalid value: "not ok": name is neither a standard finalizer name nor is it fully qualified` + "\n" +
				`spec.finalizers: Invalid value: "nodomain": name is neither a standard finalizer name nor is it fully qualified`,
		},
		{name: "named", resource: "serviceaccounts", object: "metadata: {name: a, namespace: ns}"},
		{name: "unnamed", resource: "serviceaccounts", object: "metadata: {namespace: ns}",
			want: "metadata.name: Required value: name or generateName is required"},
	} {
		t.Run(test.resource+": "+test.name, func(t *testing.T) {
			k := kindOf(t, test.resource)
			if got := texts(create(k, parse(t, k, test.object))); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

// TestCreateEvents checks the errors of new and changed events.
func TestCreateEvents(t *testing.T) {
	const whole = "{name: a, namespace: ns}\ninvolvedObject: {namespace: ns}\n"
	const stamped = "eventTime: '2024-05-06T07:08:09.123456Z'\nreportingComponent: example.com/c\nreportingInstance: i\naction: Kill\nreason: Killed\n"
	long := strings.Repeat("x", 129)
	kind := kindOf(t, "events")
	for _, test := range []struct{ name, object, want string }{
		{name: "an odd type is taken", object: whole + "type: Odd", want: ""},
		{name: "a name that is not a DNS name", object: "{name: A_b, namespace: ns}\ninvolvedObject: {namespace: ns}", want: ""},
		{name: "about another namespace", object: "{name: a, namespace: ns}\ninvolvedObject: {namespace: elsewhere}",
			want: `involvedObject.namespace: Invalid value: "elsewhere": does not match event.namespace`},
		{name: "about a cluster-scoped object", object: "{name: a, namespace: ns}\ninvolvedObject: {kind: Node}",
			want: `involvedObject.namespace: Invalid value: "": does not match event.namespace`},
		{name: "about a cluster-scoped object, in default", object: "{name: a, namespace: default}\ninvolvedObject: {kind: Node}", want: ""},
		{name: "about a cluster-scoped object, old style, in the system namespace",
			object: "{name: a, namespace: kube-system}\ninvolvedObject: {kind: Node}",
			want:   `involvedObject.namespace: Invalid value: "": does not match event.namespace`},
		{name: "about a cluster-scoped object, new style, in the system namespace",
			object: "{name: a, namespace: kube-system}\ninvolvedObject: {kind: Node}\n" + stamped, want: ""},
		{name: "about a cluster-scoped object, new style, elsewhere",
			object: "{name: a, namespace: ns}\ninvolvedObject: {kind: Node}\n" + stamped,
			want:   `involvedObject.namespace: Invalid value: "": does not match event.namespace`},
		{name: "new style", object: whole + stamped, want: ""},
		{name: "new style may be about another namespace",
			object: "{name: a, namespace: ns}\ninvolvedObject: {namespace: elsewhere}\n" + stamped, want: ""},
		{
			name: "new style wants more", object: whole + "eventTime: '2024-05-06T07:08:09.123456Z'",
			want: "reportingComponent: Required value\n" +
				`reportingComponent: Invalid value: "": name part must be non-empty` + "\n" +
				`reportingComponent: Invalid value: "": ` + badQualified + "\n" +
				"reportingInstance: Required value\naction: Required value\nreason: Required value",
		},
		{
			name: "new style with long texts",
			object: whole + "eventTime: '2024-05-06T07:08:09.123456Z'\nreportingComponent: c\nreportingInstance: " + long +
				"\naction: " + long + "\nreason: " + long + "\nmessage: " + strings.Repeat("x", 1025),
			want: `reportingInstance: Invalid value: "": can have at most 128 characters` + "\n" +
				`action: Invalid value: "": can have at most 128 characters` + "\n" +
				`reason: Invalid value: "": can have at most 128 characters` + "\n" +
				`message: Invalid value: "": can have at most 1024 characters`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := "metadata: " + test.object
			if got := texts(create(kind, parse(t, kind, object))); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
			if got := texts(update(kind, parse(t, kind, object), parse(t, kind, object))); got != test.want {
				t.Errorf("on update got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

// TestSizeLimit checks that the size is that of all values of an object.
func TestSizeLimit(t *testing.T) {
	half := make([]byte, corev1.MaxSecretSize/2)
	for _, test := range []struct {
		name, resource string
		fill           func(registry.Object, []byte)
		want           string
	}{
		{
			name: "config map", resource: "configmaps",
			fill: func(o registry.Object, more []byte) {
				c := o.(*corev1.ConfigMap)
				c.Data = map[string]string{"a": string(half)}
				c.BinaryData = map[string][]byte{"b": append(more, half...)}
			},
			want: "[]: Too long: may not be more than 1048576 bytes",
		},
		{
			name: "secret", resource: "secrets",
			fill: func(o registry.Object, more []byte) {
				o.(*corev1.Secret).Data = map[string][]byte{"a": half, "b": append(more, half...)}
			},
			want: "data: Too long: may not be more than 1048576 bytes",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			k := kindOf(t, test.resource)
			object := parse(t, k, "metadata: {name: a, namespace: ns}")
			test.fill(object, nil)
			if got := texts(create(k, object)); got != "" {
				t.Errorf("at the limit: got %s, want %q", got, "")
			}
			test.fill(object, []byte{0})
			if got := texts(create(k, object)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestUpdate checks which changes of objects are rejected.
func TestUpdate(t *testing.T) {
	const locked = "Forbidden: field is immutable when `immutable` is set"
	for _, test := range []struct{ name, resource, live, changed, want string }{
		{name: "free", resource: "configmaps", live: "data: {k: v}", changed: "data: {k: w}"},
		{name: "lock", resource: "configmaps", live: "data: {k: v}", changed: "data: {k: w}\nimmutable: true"},
		{name: "unlock and change", resource: "configmaps", live: "data: {k: v}\nimmutable: true",
			changed: "data: {k: w}\nimmutable: false", want: "immutable: " + locked + "\ndata: " + locked},
		{name: "replace locked", resource: "configmaps", live: "data: {k: v}\nbinaryData: {b: AAEC}\nimmutable: true",
			changed: "data: {k: w}", want: "immutable: " + locked + "\ndata: " + locked + "\nbinaryData: " + locked},
		{name: "keep locked", resource: "configmaps", live: "data: {k: v}\nimmutable: true", changed: "data: {k: v}\nimmutable: true"},
		{name: "empty map in locked", resource: "configmaps", live: "data: {k: v}\nimmutable: true",
			changed: "data: {k: v}\nbinaryData: {}\nimmutable: true", want: "binaryData: " + locked},
		{name: "empty data in locked secret", resource: "secrets", live: "immutable: true", changed: "data: {}\nimmutable: true",
			want: "data: " + locked},
		{name: "bad key", resource: "configmaps", live: "data: {k: v}", changed: "data: {..: v}",
			want: `data[..]: Invalid value: "..": must not be '..'`},
		{name: "free", resource: "secrets", live: "data: {k: aGk=}", changed: "stringData: {k: w}"},
		{name: "type", resource: "secrets", live: "data: {k: aGk=}", changed: "data: {k: aGk=}\ntype: example.com/other",
			want: `type: Invalid value: "example.com/other": field is immutable`},
		{name: "type left out", resource: "secrets", live: "type: example.com/x", changed: "data: {}",
			want: `type: Invalid value: "Opaque": field is immutable`},
		{name: "change locked", resource: "secrets", live: "data: {k: aGk=}\nimmutable: true",
			changed: "stringData: {k: w}\nimmutable: true", want: "data: " + locked},
		{name: "unlock", resource: "secrets", live: "data: {k: aGk=}\nimmutable: true", changed: "data: {k: aGk=}", want: "immutable: " + locked},
		{name: "finalizers are not taken", resource: "namespaces", live: "spec: {finalizers: [kubernetes]}",
			changed: "spec: {finalizers: [bad one]}"},
		{name: "secrets", resource: "serviceaccounts", live: "secrets: [{name: a}]", changed: "secrets: [{name: b}]"},
	} {
		t.Run(test.resource+": "+test.name, func(t *testing.T) {
			k := kindOf(t, test.resource)
			head := "metadata: {name: a, namespace: ns}\n"
			if !k.Namespaced {
				head = "metadata: {name: a}\n"
			}
			old := parse(t, k, head+test.live)
			if errs := create(k, old); len(errs) != 0 {
				t.Fatal(texts(errs))
			}
			if got := texts(update(k, parse(t, k, head+test.changed), old)); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

// TestSecretData checks that stringData is merged into data.
func TestSecretData(t *testing.T) {
	k := kindOf(t, "secrets")
	s := parse(t, k, "metadata: {name: s, namespace: ns}\ndata: {k: b2xk, l: bA==}\nstringData: {k: new}").(*corev1.Secret)
	k.Default(s)
	if got := string(s.Data["k"]) + string(s.Data["l"]); got != "newl" || s.StringData != nil || s.Type != corev1.SecretTypeOpaque {
		t.Errorf("got Secret %+v, want the type Opaque and stringData merged into data", s)
	}
}

// TestWarnings checks the warnings of new and changed objects.
func TestWarnings(t *testing.T) {
	const marked = "metadata: {name: a, namespace: ns, annotations: {kubernetes.io/enforce-mountable-secrets: 'true'}}"
	const deprecated = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
	for _, test := range []struct{ resource, live, object, want string }{
		{resource: "serviceaccounts", object: marked, want: deprecated},
		{resource: "serviceaccounts", object: "metadata: {name: a}"},
		{resource: "serviceaccounts", live: "metadata: {name: a}", object: marked, want: deprecated},
		{resource: "serviceaccounts", live: marked, object: marked},
		{resource: "secrets", object: "type: kubernetes.io/tls\nstringData: {tls.crt: x, tls.key: z}",
			want: "tls: failed to find any PEM data in certificate input"},
		{resource: "secrets", object: "type: Opaque\nstringData: {tls.crt: x, tls.key: z}"},
		{resource: "resourcequotas", object: "spec: {hard: {cpu: 2, limits.cpu: 1}}",
			want: "ResourceQuota cpu (2) should be less than limits.cpu (1)"},
		{resource: "resourcequotas",
			object: "spec: {hard: {requests.memory: 2Gi, limits.memory: 1Gi, requests.cpu: 1, limits.cpu: 1}}",
			want:   "ResourceQuota requests.memory (2Gi) should be less than limits.memory (1Gi)"},
		{resource: "resourcequotas", live: "spec: {}", object: "spec: {hard: {cpu: 2, limits.cpu: 1}}"},
	} {
		k := kindOf(t, test.resource)
		o := parse(t, k, test.object)
		if k.Default != nil {
			k.Default(o)
		}
		var got []string
		if test.live == "" {
			got = k.Create.Warnings(o)
		} else {
			got = k.Update.Warnings(o, parse(t, k, test.live))
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%s %s: got warnings %q, want %q", test.resource, test.object, got, test.want)
		}
	}
}

// TestNamespaceLife checks what creation, update and finalization of a namespace can change.
func TestNamespaceLife(t *testing.T) {
	kind := kindOf(t, "namespaces")
	namespace := parse(t, kind, `
metadata: {name: x, labels: {case: c, kubernetes.io/metadata.name: wrong}}
spec: {finalizers: [example.com/f]}
status: {phase: Terminating}`).(*corev1.Namespace)
	if errs := create(kind, namespace); len(errs) != 0 {
		t.Fatal(texts(errs))
	}
	wantSpec := corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/f", "kubernetes"}}
	if namespace.Labels["kubernetes.io/metadata.name"] != "x" || namespace.Status.Phase != corev1.NamespaceActive || !equalSpecs(namespace, wantSpec) {
		t.Fatalf("after creation: got %+v, want it Active with the name label and the finalizer", namespace)
	}

	changed := parse(t, kind, "metadata: {name: x, labels: {a: b}}\nspec: {}\nstatus: {phase: Terminating}").(*corev1.Namespace)
	if errs := update(kind, changed, namespace); len(errs) != 0 {
		t.Fatal(texts(errs))
	}
	if changed.Labels["kubernetes.io/metadata.name"] != "x" || changed.Labels["a"] != "b" ||
		changed.Status.Phase != corev1.NamespaceActive || !equalSpecs(changed, wantSpec) {
		t.Errorf("after the update: got %+v, want the new label, and the name label, phase and spec kept", changed)
	}

	finalize := kind.Subresource("finalize")
	final := parse(t, kind, "metadata: {name: x}\nspec: {finalizers: [kubernetes, example.com/g]}\nstatus: {phase: Terminating}").(*corev1.Namespace)
	finalize.Prepare(final, namespace)
	if errs := finalize.ValidateUpdate(final, namespace); len(errs) != 0 {
		t.Error(texts(errs))
	}
	if final.Status.Phase != corev1.NamespaceActive || len(final.Spec.Finalizers) != 2 {
		t.Errorf("after finalize: got %+v, want it Active with 2 finalizers", final)
	}
	final.Spec.Finalizers = []corev1.FinalizerName{"nodomain"}
	if got := texts(finalize.ValidateUpdate(final, namespace)); got != `spec.finalizers[0]: Invalid value: "nodomain": name is neither a standard finalizer name nor is it fully qualified` {
		t.Errorf("got %s, want %q",
			got,
			`spec.finalizers[0]: Invalid value: "nodomain": name is neither a standard finalizer name nor is it fully qualified`)
	}
}

// equalSpecs reports whether a namespace has a spec.
func equalSpecs(n *corev1.Namespace, want corev1.NamespaceSpec) bool {
	if len(n.Spec.Finalizers) != len(want.Finalizers) {
		return false
	}
	for i, f := range want.Finalizers {
		if n.Spec.Finalizers[i] != f {
			return false
		}
	}
	return true
}

// TestNamespacePhase checks that the phase must agree with the deletion timestamp.
func TestNamespacePhase(t *testing.T) {
	k := kindOf(t, "namespaces")
	for _, test := range []struct{ object, want string }{
		{object: "status: {phase: Active}", want: ""},
		{object: "status: {phase: Terminating}",
			want: "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"},
		{object: "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\nstatus: {phase: Terminating}", want: ""},
		{object: "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\nstatus: {phase: Active}",
			want: "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"},
	} {
		n := parse(t, k, test.object)
		if got := texts(k.Subresource("status").ValidateUpdate(n, n)); got != test.want {
			t.Errorf("%s: got %s, want %s", test.object, got, test.want)
		}
	}
}

// TestRulesRejectOtherTypes checks that validating an object of another type panics.
func TestRulesRejectOtherTypes(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic for a secret as config map, want one")
		}
	}()
	var errs field.ErrorList = kindOf(t, "configmaps").Create.Validate(&corev1.Secret{})
	t.Errorf("got %v, want a panic", errs)
}

// TestUnusualAddressesCauseWarnings covers objects and subresources.
func TestUnusualAddressesCauseWarnings(t *testing.T) {
	says := func(path, ip, instead string) string {
		return path + ": non-standard IP address \"" + ip + "\" will be considered invalid in a future Kubernetes release: use \"" + instead + "\""
	}
	for _, test := range []struct {
		resource, sub, object string
		want                  []string
	}{
		{resource: "pods", object: "metadata: {name: a}\nspec: {dnsConfig: {nameservers: [1.1.1.1, 01.1.1.2]}, hostAliases: [{ip: '::ffff:1.2.3.4'}, {ip: x}]}", want: []string{
			says("spec.dnsConfig.nameservers[1]", "01.1.1.2", "1.1.1.2"), says("spec.hostAliases[0].ip", "::ffff:1.2.3.4", "1.2.3.4"),
		}},
		{resource: "pods", sub: "status", object: "status: {podIPs: [{ip: 01.1.1.1}], hostIPs: [{ip: 1.1.1.1}, {ip: 02.1.1.1}]}", want: []string{
			says("status.podIPs[0].ip", "01.1.1.1", "1.1.1.1"), says("status.hostIPs[1].ip", "02.1.1.1", "2.1.1.1"),
		}},
		{resource: "services", sub: "status", object: "status: {loadBalancer: {ingress: [{hostname: a}, {ip: 01.1.1.1}]}}", want: []string{
			says("status.loadBalancer.ingress[1]", "01.1.1.1", "1.1.1.1"),
		}},
	} {
		k := kindOf(t, test.resource)
		warnings := k.Create.Warnings
		if test.sub != "" {
			warnings = k.Subresource(test.sub).Warnings
		}
		if got := warnings(parse(t, k, test.object)); !slices.Equal(got, test.want) {
			t.Errorf("%s/%s %s: got warnings %q, want %q", test.resource, test.sub, test.object, got, test.want)
		}
	}
}
