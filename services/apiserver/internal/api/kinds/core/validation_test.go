package core_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
)

const invalidQualifiedName = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"

// TestInvalidNewObjectsAreRejected checks the errors that a client gets for a new object.
func TestInvalidNewObjectsAreRejected(t *testing.T) {
	for _, test := range []struct{ name, resource, object, want string }{
		{name: "valid", resource: "configmaps", object: "metadata: {name: a, namespace: ns}\ndata: {k: v}\nbinaryData: {b: AAEC}"},
		{
			name: "one key in both data and binaryData, and an invalid key", resource: "configmaps",
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
		{name: "any type", resource: "secrets", object: "metadata: {name: a, namespace: ns}\ntype: example.com/x\ndata: {k: AAEC}"},
		{name: "an invalid key", resource: "secrets", object: "metadata: {name: a, namespace: ns}\ndata: {a b: AAEC}",
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
		{name: "name with a dot", resource: "namespaces", object: "metadata: {name: a.x}",
			want: `metadata.name: Invalid value: "a.x": must not contain dots`},
		{
			name: "invalid finalizers", resource: "namespaces", object: "metadata: {name: a}\nspec: {finalizers: [not ok, nodomain]}",
			want: `spec.finalizers: Invalid value: "not ok": ` + invalidQualifiedName + "\n" +
				`spec.finalizers: Invalid value: "not ok": name is neither a standard finalizer name nor is it fully qualified` + "\n" +
				`spec.finalizers: Invalid value: "nodomain": name is neither a standard finalizer name nor is it fully qualified`,
		},
		{name: "with a name", resource: "serviceaccounts", object: "metadata: {name: a, namespace: ns}"},
		{name: "without a name", resource: "serviceaccounts", object: "metadata: {namespace: ns}",
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

// TestInvalidEventsAreRejected checks the errors of new and changed events. Events of the new style
// have an event time.
func TestInvalidEventsAreRejected(t *testing.T) {
	const oldStyle = "{name: a, namespace: ns}\ninvolvedObject: {namespace: ns}\n"
	const newStyleFields = "eventTime: '2024-05-06T07:08:09.123456Z'\nreportingComponent: example.com/c\nreportingInstance: i\naction: Kill\nreason: Killed\n"
	longText := strings.Repeat("x", 129)
	kind := kindOf(t, "events")
	for _, test := range []struct{ name, object, want string }{
		{name: "an unknown type is accepted", object: oldStyle + "type: Odd", want: ""},
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
			object: "{name: a, namespace: kube-system}\ninvolvedObject: {kind: Node}\n" + newStyleFields, want: ""},
		{name: "about a cluster-scoped object, new style, elsewhere",
			object: "{name: a, namespace: ns}\ninvolvedObject: {kind: Node}\n" + newStyleFields,
			want:   `involvedObject.namespace: Invalid value: "": does not match event.namespace`},
		{name: "new style", object: oldStyle + newStyleFields, want: ""},
		{name: "new style may be about another namespace",
			object: "{name: a, namespace: ns}\ninvolvedObject: {namespace: elsewhere}\n" + newStyleFields, want: ""},
		{
			name: "new style requires more fields", object: oldStyle + "eventTime: '2024-05-06T07:08:09.123456Z'",
			want: "reportingComponent: Required value\n" +
				`reportingComponent: Invalid value: "": name part must be non-empty` + "\n" +
				`reportingComponent: Invalid value: "": ` + invalidQualifiedName + "\n" +
				"reportingInstance: Required value\naction: Required value\nreason: Required value",
		},
		{
			name: "new style with long texts",
			object: oldStyle + "eventTime: '2024-05-06T07:08:09.123456Z'\nreportingComponent: c\nreportingInstance: " + longText +
				"\naction: " + longText + "\nreason: " + longText + "\nmessage: " + strings.Repeat("x", 1025),
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

// TestSizeLimitCountsAllValues checks that the limit applies to the total size of the values.
func TestSizeLimitCountsAllValues(t *testing.T) {
	half := make([]byte, corev1.MaxSecretSize/2)
	for _, test := range []struct {
		name, resource string
		fill           func(registry.Object, []byte)
		want           string
	}{
		{
			name: "config map", resource: "configmaps",
			fill: func(o registry.Object, extra []byte) {
				c := o.(*corev1.ConfigMap)
				c.Data = map[string]string{"a": string(half)}
				c.BinaryData = map[string][]byte{"b": append(extra, half...)}
			},
			want: "[]: Too long: may not be more than 1048576 bytes",
		},
		{
			name: "secret", resource: "secrets",
			fill: func(o registry.Object, extra []byte) {
				o.(*corev1.Secret).Data = map[string][]byte{"a": half, "b": append(extra, half...)}
			},
			want: "data: Too long: may not be more than 1048576 bytes",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			kind := kindOf(t, test.resource)
			object := parse(t, kind, "metadata: {name: a, namespace: ns}")
			test.fill(object, nil)
			if got := texts(create(kind, object)); got != "" {
				t.Errorf("at the limit: got %s, want %q", got, "")
			}
			test.fill(object, []byte{0})
			if got := texts(create(kind, object)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestInvalidChangesAreRejected checks which changes of objects are rejected. Locked objects have the
// field immutable set.
func TestInvalidChangesAreRejected(t *testing.T) {
	const immutableError = "Forbidden: field is immutable when `immutable` is set"
	for _, test := range []struct{ name, resource, live, changed, want string }{
		{name: "change an object that is not locked", resource: "configmaps", live: "data: {k: v}", changed: "data: {k: w}"},
		{name: "lock", resource: "configmaps", live: "data: {k: v}", changed: "data: {k: w}\nimmutable: true"},
		{name: "unlock and change", resource: "configmaps", live: "data: {k: v}\nimmutable: true",
			changed: "data: {k: w}\nimmutable: false", want: "immutable: " + immutableError + "\ndata: " + immutableError},
		{name: "replace locked", resource: "configmaps", live: "data: {k: v}\nbinaryData: {b: AAEC}\nimmutable: true",
			changed: "data: {k: w}", want: "immutable: " + immutableError + "\ndata: " + immutableError + "\nbinaryData: " + immutableError},
		{name: "keep locked", resource: "configmaps", live: "data: {k: v}\nimmutable: true", changed: "data: {k: v}\nimmutable: true"},
		{name: "empty map in locked", resource: "configmaps", live: "data: {k: v}\nimmutable: true",
			changed: "data: {k: v}\nbinaryData: {}\nimmutable: true", want: "binaryData: " + immutableError},
		{name: "empty data in locked secret", resource: "secrets", live: "immutable: true", changed: "data: {}\nimmutable: true",
			want: "data: " + immutableError},
		{name: "invalid key", resource: "configmaps", live: "data: {k: v}", changed: "data: {..: v}",
			want: `data[..]: Invalid value: "..": must not be '..'`},
		{name: "change an object that is not locked", resource: "secrets", live: "data: {k: aGk=}", changed: "stringData: {k: w}"},
		{name: "change the type", resource: "secrets", live: "data: {k: aGk=}", changed: "data: {k: aGk=}\ntype: example.com/other",
			want: `type: Invalid value: "example.com/other": field is immutable`},
		{name: "omit the type", resource: "secrets", live: "type: example.com/x", changed: "data: {}",
			want: `type: Invalid value: "Opaque": field is immutable`},
		{name: "change locked", resource: "secrets", live: "data: {k: aGk=}\nimmutable: true",
			changed: "stringData: {k: w}\nimmutable: true", want: "data: " + immutableError},
		{name: "unlock", resource: "secrets", live: "data: {k: aGk=}\nimmutable: true", changed: "data: {k: aGk=}", want: "immutable: " + immutableError},
		{name: "finalizers are ignored", resource: "namespaces", live: "spec: {finalizers: [kubernetes]}",
			changed: "spec: {finalizers: [bad one]}"},
		{name: "change secrets", resource: "serviceaccounts", live: "secrets: [{name: a}]", changed: "secrets: [{name: b}]"},
	} {
		t.Run(test.resource+": "+test.name, func(t *testing.T) {
			kind := kindOf(t, test.resource)
			metadata := "metadata: {name: a, namespace: ns}\n"
			if !kind.Namespaced {
				metadata = "metadata: {name: a}\n"
			}
			old := parse(t, kind, metadata+test.live)
			if errs := create(kind, old); len(errs) != 0 {
				t.Fatal(texts(errs))
			}
			if got := texts(update(kind, parse(t, kind, metadata+test.changed), old)); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

// TestStringDataIsMergedIntoData checks that stringData of a secret is merged into data.
func TestStringDataIsMergedIntoData(t *testing.T) {
	k := kindOf(t, "secrets")
	s := parse(t, k, "metadata: {name: s, namespace: ns}\ndata: {k: b2xk, l: bA==}\nstringData: {k: new}").(*corev1.Secret)
	k.Default(s)
	if got := string(s.Data["k"]) + string(s.Data["l"]); got != "newl" || s.StringData != nil || s.Type != corev1.SecretTypeOpaque {
		t.Errorf("got Secret %+v, want the type Opaque and stringData merged into data", s)
	}
}

// TestQuestionableObjectsCauseWarnings checks the warnings of new and changed objects.
func TestQuestionableObjectsCauseWarnings(t *testing.T) {
	const annotated = "metadata: {name: a, namespace: ns, annotations: {kubernetes.io/enforce-mountable-secrets: 'true'}}"
	const annotationWarning = "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
	for _, test := range []struct{ resource, live, object, want string }{
		{resource: "serviceaccounts", object: annotated, want: annotationWarning},
		{resource: "serviceaccounts", object: "metadata: {name: a}"},
		{resource: "serviceaccounts", live: "metadata: {name: a}", object: annotated, want: annotationWarning},
		{resource: "serviceaccounts", live: annotated, object: annotated},
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
		kind := kindOf(t, test.resource)
		obj := parse(t, kind, test.object)
		if kind.Default != nil {
			kind.Default(obj)
		}
		var got []string
		if test.live == "" {
			got = kind.Create.Warnings(obj)
		} else {
			got = kind.Update.Warnings(obj, parse(t, kind, test.live))
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%s %s: got warnings %q, want %q", test.resource, test.object, got, test.want)
		}
	}
}

// TestNamespaceKeepsServerFields checks what creation, update and finalization of a namespace can
// change.
func TestNamespaceKeepsServerFields(t *testing.T) {
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
func equalSpecs(namespace *corev1.Namespace, want corev1.NamespaceSpec) bool {
	if len(namespace.Spec.Finalizers) != len(want.Finalizers) {
		return false
	}
	for i, f := range want.Finalizers {
		if namespace.Spec.Finalizers[i] != f {
			return false
		}
	}
	return true
}

// TestNamespacePhaseMatchesDeletionTimestamp checks that a phase is rejected if it contradicts the
// deletion timestamp.
func TestNamespacePhaseMatchesDeletionTimestamp(t *testing.T) {
	kind := kindOf(t, "namespaces")
	for _, test := range []struct{ object, want string }{
		{object: "status: {phase: Active}", want: ""},
		{object: "status: {phase: Terminating}",
			want: "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"},
		{object: "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\nstatus: {phase: Terminating}", want: ""},
		{object: "metadata: {deletionTimestamp: '2024-01-01T00:00:00Z'}\nstatus: {phase: Active}",
			want: "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"},
	} {
		n := parse(t, kind, test.object)
		if got := texts(kind.Subresource("status").ValidateUpdate(n, n)); got != test.want {
			t.Errorf("%s: got %s, want %s", test.object, got, test.want)
		}
	}
}

// TestValidatingOtherTypePanics checks that the validation of an object of another type panics.
func TestValidatingOtherTypePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic for a secret as config map, want one")
		}
	}()
	var errs field.ErrorList = kindOf(t, "configmaps").Create.Validate(&corev1.Secret{})
	t.Errorf("got %v, want a panic", errs)
}

// TestUnusualAddressesCauseWarnings checks the warnings about addresses of objects and subresources.
func TestUnusualAddressesCauseWarnings(t *testing.T) {
	warning := func(path, ip, instead string) string {
		return path + ": non-standard IP address \"" + ip + "\" will be considered invalid in a future Kubernetes release: use \"" + instead + "\""
	}
	for _, test := range []struct {
		resource, subresource, object string
		want                          []string
	}{
		{resource: "pods", object: "metadata: {name: a}\nspec: {dnsConfig: {nameservers: [1.1.1.1, 01.1.1.2]}, hostAliases: [{ip: '::ffff:1.2.3.4'}, {ip: x}]}", want: []string{
			warning("spec.dnsConfig.nameservers[1]", "01.1.1.2", "1.1.1.2"), warning("spec.hostAliases[0].ip", "::ffff:1.2.3.4", "1.2.3.4"),
		}},
		{resource: "pods", subresource: "status", object: "status: {podIPs: [{ip: 01.1.1.1}], hostIPs: [{ip: 1.1.1.1}, {ip: 02.1.1.1}]}", want: []string{
			warning("status.podIPs[0].ip", "01.1.1.1", "1.1.1.1"), warning("status.hostIPs[1].ip", "02.1.1.1", "2.1.1.1"),
		}},
		{resource: "services", subresource: "status", object: "status: {loadBalancer: {ingress: [{hostname: a}, {ip: 01.1.1.1}]}}", want: []string{
			warning("status.loadBalancer.ingress[1]", "01.1.1.1", "1.1.1.1"),
		}},
	} {
		kind := kindOf(t, test.resource)
		warnings := kind.Create.Warnings
		if test.subresource != "" {
			warnings = kind.Subresource(test.subresource).Warnings
		}
		if got := warnings(parse(t, kind, test.object)); !slices.Equal(got, test.want) {
			t.Errorf("%s/%s %s: got warnings %q, want %q", test.resource, test.subresource, test.object, got, test.want)
		}
	}
}
