package hostile

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// expandingRequest is a request with a value that is short in text and expands when it is
// processed.
type expandingRequest struct {
	name, method, path, media, body string
	// want is a part of the 4xx response. If it is empty, any quick response except 5xx passes.
	want string
}

// rejectedExponent is a part of the message about a quantity with a large exponent.
const rejectedExponent = "exponent of quantity"

// costlyQuantities returns requests with a quantity that takes hours to compute.
func costlyQuantities() []expandingRequest {
	const q = "1e-2147483647"
	spec := `"spec":{"containers":[{"name":"a","image":"b","resources":{"limits":{"cpu":"` + q + `"}}}]}`
	document := func(apiVersion, kind, rest string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"q"},` + rest + `}`
	}
	const own = "/api/v1/namespaces/b/"
	container := protobufField(1, "a") + protobufField(2, "b") + protobufField(8,
		protobufField(1, protobufField(1, "cpu")+protobufField(2, protobufField(1, q))))
	pod := protobufEnvelope("v1", "Pod", protobufField(1, protobufField(1, "q"))+protobufField(2, protobufField(2, container)))
	patch := `{"spec":{"hard":{"cpu":"` + q + `"}}}`
	hpa := "/apis/autoscaling/v1/namespaces/b/horizontalpodautoscalers"
	return []expandingRequest{
		{
			name:   "create",
			method: "POST",
			path:   own + "pods",
			media:  jsonMedia,
			body:   document("v1", "Pod", spec),
			want:   rejectedExponent,
		},
		{name: "create with space", method: "POST", path: own + "pods", media: jsonMedia,
			body: strings.Replace(document("v1", "Pod", spec), q, q+" ", 1), want: rejectedExponent},
		{name: "dry run", method: "POST", path: own + "pods?dryRun=All", media: jsonMedia, body: document("v1", "Pod", spec),
			want: rejectedExponent},
		{name: "YAML", method: "POST", path: own + "pods", media: yamlMedia,
			body: "apiVersion: v1\nkind: Pod\nmetadata: {name: q}\nspec: {containers: [{name: a, image: b, resources: {limits: {cpu: '1\\x65-2147483647'}}}]}"},
		{name: "protobuf", method: "POST", path: own + "pods", media: protoMedia, body: pod, want: rejectedExponent},
		{name: "template", method: "POST", path: "/apis/apps/v1/namespaces/b/deployments", media: jsonMedia,
			body: document("apps/v1", "Deployment",
				`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},`+spec+`}}`),
			want: rejectedExponent,
		},
		{name: "claim", method: "POST", path: own + "persistentvolumeclaims", media: jsonMedia,
			body: document("v1", "PersistentVolumeClaim",
				`"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"`+q+`"}}}`),
			want: rejectedExponent,
		},
		{name: "divisor", method: "POST", path: own + "pods", media: jsonMedia,
			body: document("v1", "Pod",
				`"spec":{"containers":[{"name":"a","image":"b","env":[{"name":"e","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"`+q+`"}}}]}]}`),
			want: rejectedExponent,
		},
		{name: "metric", method: "POST", path: "/apis/autoscaling/v2/namespaces/b/horizontalpodautoscalers", media: jsonMedia,
			body: document("autoscaling/v2", "HorizontalPodAutoscaler",
				`"spec":{"maxReplicas":1,"scaleTargetRef":{"kind":"a","name":"b"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"AverageValue","averageValue":"`+q+`"}}}]}`),
			want: rejectedExponent,
		},
		{name: "metric in an annotation", method: "POST", path: hpa, media: jsonMedia,
			body: `{"metadata":{"name":"q","annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"Resource\",\"resource\":{\"name\":\"cpu\",\"targetAverageValue\":\"` + q + `\"}}]"}},"spec":{"maxReplicas":1,"scaleTargetRef":{"kind":"a","name":"b"}}}`},
		{
			name:   "merge patch",
			method: "PATCH",
			path:   own + "resourcequotas/q",
			media:  mergePatchMedia,
			body:   patch,
			want:   rejectedExponent,
		},
		{
			name: "strategic merge patch", method: "PATCH", path: own + "resourcequotas/q",
			media: strategicPatchMedia, body: patch, want: rejectedExponent,
		},
		{name: "JSON patch", method: "PATCH", path: own + "resourcequotas/q", media: jsonPatchMedia,
			body: `[{"op":"add","path":"/spec","value":{"hard":{"cpu":"` + q + `"}}}]`, want: rejectedExponent},
		{name: "apply", method: "PATCH", path: own + "resourcequotas/q?fieldManager=m", media: applyMedia,
			body: `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"cpu":"` + q + `"}}}`,
			want: rejectedExponent},
		{name: "apply in CBOR", method: "PATCH", path: own + "resourcequotas/q?fieldManager=m",
			media: "application/apply-patch+cbor",
			body:  "\xd9\xd9\xf7\xa4japiVersionbv1dkindmResourceQuotahmetadata\xa1dnameaqdspec\xa1dhard\xa1ccpum" + q,
			want:  rejectedExponent},
		{name: "status", method: "PATCH", path: own + "resourcequotas/q/status", media: mergePatchMedia,
			body: `{"status":{"used":{"cpu":"` + q + `"}}}`, want: rejectedExponent},
		{name: "update", method: "PUT", path: own + "resourcequotas/q", media: jsonMedia,
			body: document("v1", "ResourceQuota", `"spec":{"hard":{"cpu":"`+q+`"}}`), want: rejectedExponent},
		{name: "limit range", method: "POST", path: own + "limitranges", media: jsonMedia,
			body: document("v1", "LimitRange", `"spec":{"limits":[{"type":"Container","max":{"cpu":"`+q+`"}}]}`),
			want: rejectedExponent},
		{name: "huge pages", method: "POST", path: own + "pods", media: jsonMedia,
			body: document("v1", "Pod",
				`"spec":{"containers":[{"name":"a","image":"b","resources":{"limits":{"hugepages-`+q+`":"1"}}}]}`)},
		{name: "rule of a definition", method: "POST", path: "/apis/ex.test/v1/namespaces/b/rules", media: jsonMedia,
			body: `{"apiVersion":"ex.test/v1","kind":"Rule","metadata":{"name":"q"},"spec":{"q":"` + q + `","a":"x","b":"x"}}`,
			want: "exponent"},
		{name: "policy", method: "POST", path: own + "configmaps", media: jsonMedia,
			body: `{"metadata":{"name":"quantity"},"data":{"q":"` + q + `"}}`, want: "exponent"},
		{name: "long digits", method: "POST", path: own + "resourcequotas", media: jsonMedia,
			body: document("v1", "ResourceQuota", `"spec":{"hard":{"cpu":"`+strings.Repeat("9", 500_000)+`"}}`),
			want: "is longer than"},
	}
}

// expandingValues returns requests with values that CEL functions, patches or decoders expand.
func expandingValues() []expandingRequest {
	const own = "/api/v1/namespaces/b/"
	data := func(name string, values map[string]string) string {
		text, _ := json.Marshal(map[string]any{"metadata": map[string]string{"name": name}, "data": values})
		return string(text)
	}
	custom := func(rest string) string {
		return `{"apiVersion":"ex.test/v1","kind":"Rule","metadata":{"name":"g"},"spec":{` + rest + `}}`
	}
	long := strings.Repeat("a", 300_000)
	copies := make([]string, 30)
	for i := range copies {
		copies[i] = fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/k%d"}`, i)
	}
	return []expandingRequest{
		{name: "text added to itself", method: "POST", path: own + "configmaps", media: jsonMedia,
			body: data("concat", map[string]string{"a": strings.Repeat("a", 1000)}), want: "cost"},
		{name: "text joined by a text", method: "POST", path: own + "configmaps", media: jsonMedia,
			body: data("join", map[string]string{"a": long, "b": long}), want: "cost"},
		{name: "text replaced by a text", method: "POST", path: own + "configmaps", media: jsonMedia,
			body: data("replace", map[string]string{"a": long, "b": long}), want: "cost"},
		{name: "format with a precision", method: "POST", path: own + "configmaps", media: jsonMedia,
			body: data("format", map[string]string{"a": "%.2147483647f"})},
		{name: "pattern of the client", method: "POST", path: own + "configmaps", media: jsonMedia,
			body: data("matches", map[string]string{"a": long, "b": "(((((a{0,9}){0,9}){0,9}){0,9}){0,9})"}), want: "matches"},
		{name: "URL", method: "POST", path: own + "configmaps", media: jsonMedia,
			body: data("url", map[string]string{"a": "https://[" + strings.Repeat(":", 300_000) + "]/"})},
		{
			name:   "network",
			method: "POST",
			path:   own + "configmaps",
			media:  jsonMedia,
			body:   data("cidr", map[string]string{"a": "::/0"}),
		},
		{name: "defaults of many elements", method: "POST", path: "/apis/ex.test/v1/namespaces/b/rules", media: jsonMedia,
			body: custom(`"q":"1","a":"x","b":"x","list":[` + repeatElements("{}", 100_000) + `]`), want: "too large"},
		{name: "number beyond a float", method: "POST", path: "/apis/ex.test/v1/namespaces/b/rules", media: jsonMedia,
			body: custom(`"q":"1","a":"x","b":"x","n":1e2147483647`), want: "cannot unmarshal number"},
		{name: "columns", method: "GET", path: "/apis/ex.test/v1/namespaces/b/rules"},
		{name: "integer", method: "POST", path: own + "pods", media: jsonMedia,
			body: `{"metadata":{"name":"g"},"spec":{"priority":1e2147483647,"containers":[{"name":"a","image":"b"}]}}`,
			want: "cannot unmarshal number"},
		{name: "percentage", method: "POST", path: "/apis/policy/v1/namespaces/b/poddisruptionbudgets?dryRun=All",
			media: jsonMedia,
			body:  `{"metadata":{"name":"g"},"spec":{"selector":{},"maxUnavailable":"` + strings.Repeat("9", 300_000) + `%"}}`},
		{name: "duration", method: "POST", path: own + "configmaps", media: jsonMedia,
			body: data("duration", map[string]string{"a": strings.Repeat("1h", 150_000)})},
		{name: "copies of copies", method: "PATCH", path: own + "configmaps/mine", media: jsonPatchMedia,
			body: "[" + strings.Join(copies, ",") + "]"},
		{name: "chunks of text in CBOR", method: "POST", path: own + "configmaps", media: cborMedia,
			body: "\xd9\xd9\xf7\x7f" + strings.Repeat("\x60", 1<<20) + "\xff", want: "unrecognized"},
		{name: "chunks of bytes in CBOR", method: "POST", path: own + "configmaps", media: cborMedia,
			body: "\xd9\xd9\xf7\x5f" + strings.Repeat("\x40", 1<<20) + "\xff", want: "unrecognized"},
		{name: "tags in CBOR", method: "POST", path: own + "configmaps", media: cborMedia,
			body: strings.Repeat("\xd9\xd9\xf7", 500_000) + "\xa0", want: "cbor"},
		{name: "large number in CBOR", method: "POST", path: own + "configmaps", media: cborMedia,
			body: "\xd9\xd9\xf7\xa1aa\xc2\x5a\x00\x0f\x00\x00" + strings.Repeat("\xff", 0xf0000), want: "cbor"},
		{name: "nested fields of a manager", method: "POST", path: own + "configmaps", media: jsonMedia,
			body: `{"metadata":{"name":"g","managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":` + nestedText(`{"f:a":`, "{}", "}", 9000) + `}]}}`},
	}
}

// protobufField encodes a length-delimited protobuf field.
func protobufField(number byte, content string) string {
	return string(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(content)))) + content
}

// protobufEnvelope encodes an object in the protobuf form of Kubernetes.
func protobufEnvelope(apiVersion, kind, raw string) string {
	return "k8s\x00" + protobufField(1, protobufField(1, apiVersion)+protobufField(2, kind)) + protobufField(2, raw)
}

// createPolicies creates one policy per expression for the attacker's config maps, selected by
// object name, and a definition with rules, columns and defaults.
func (x *tenants) createPolicies(t *testing.T) {
	t.Helper()
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
	doubled := []map[string]string{{"name": "v0", "expression": "object.data.a"}}
	for i := range 40 {
		doubled = append(doubled, map[string]string{
			"name":       fmt.Sprintf("v%d", i+1),
			"expression": fmt.Sprintf("variables.v%d + variables.v%d", i, i),
		})
	}
	for name, expression := range map[string]string{
		"quantity": "quantity(object.data.q).isGreaterThan(quantity('0'))", "concat": "variables.v40.size() > 0",
		"join":    "object.data.a.split('').join(object.data.b).size() > 0",
		"replace": "object.data.a.replace('a', object.data.b).size() > 0",
		"format":  "object.data.a.format([1.0]).size() > 0", "matches": "object.data.a.matches(object.data.b)",
		"url":      "isURL(object.data.a)",
		"cidr":     "cidr(object.data.a).containsCIDR('::/1')",
		"duration": "duration(object.data.a) > duration('1s')",
	} {
		spec := map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups":     []string{""},
				"apiVersions":   []string{"v1"},
				"operations":    []string{"CREATE"},
				"resources":     []string{"configmaps"},
				"resourceNames": []string{name},
			}}},
			"validations": []any{map[string]string{"expression": expression}},
		}
		if name == "concat" {
			spec["variables"] = doubled
		}
		for path, object := range map[string]any{
			"ies": map[string]any{"metadata": map[string]string{"name": name}, "spec": spec},
			"ybindings": map[string]any{
				"metadata": map[string]string{"name": name},
				"spec":     map[string]any{"policyName": name, "validationActions": []string{"Deny"}},
			},
		} {
			body, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			x.mustCreate(t, policies+path, string(body))
		}
	}
	x.mustCreate(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"metadata":{"name":"rules.ex.test"},"spec":{"group":"ex.test","scope":"Namespaced","names":{"plural":"rules","kind":"Rule"},"versions":[{"name":"v1","served":true,"storage":true,
		"additionalPrinterColumns":[{"name":"x","type":"string","jsonPath":".spec.list[*].a"},{"name":"y","type":"string","jsonPath":".spec.list[0:1000000].a"}],
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{
			"q":{"type":"string","maxLength":100,"x-kubernetes-validations":[{"rule":"quantity(self).isGreaterThan(quantity('0'))"}]},
			"a":{"type":"string"},"b":{"type":"string"},"n":{"type":"number"},
			"list":{"type":"array","items":{"type":"object","properties":{"a":{"type":"string","default":"`+
			strings.Repeat("y", 50_000)+`"}}}}}}}}}}]}}`)
	x.mustCreate(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/roles",
		`{"metadata":{"name":"rules"},"rules":[{"apiGroups":["ex.test","","policy"],"resources":["*"],"verbs":["*"]}]}`)
	x.mustCreate(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings",
		`{"metadata":{"name":"rules"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"rules"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}`)
	x.mustCreate(t, "/api/v1/namespaces/b/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"count/secrets":"9"}}}`)
	x.mustCreate(t, "/api/v1/namespaces/b/configmaps",
		`{"metadata":{"name":"mine"},"data":{"a":"`+strings.Repeat("x", 100_000)+`"}}`)
}

// TestValuesThatExpandAreRejectedOrBounded pins the check of quantities before they are parsed, the
// cost limit of strings in expressions and the limits of the decoders.
func TestValuesThatExpandAreRejectedOrBounded(t *testing.T) {
	x := startTenants(t)
	x.createPolicies(t)
	c := x.attackerClient()
	harness.Eventually(t, waitTimeout, "the policies to take effect", func() error {
		return x.sendAndRead(c, "POST", "/api/v1/namespaces/b/configmaps?dryRun=All", jsonMedia,
			`{"metadata":{"name":"quantity"},"data":{"q":"-1"}}`).requireCode(http.StatusUnprocessableEntity)
	})
	x.attackFor(t, 0, func(context.Context) {
		for _, e := range append(costlyQuantities(), expandingValues()...) {
			r := x.sendAndRead(c, e.method, e.path, e.media, e.body, "Accept", acceptOf(e))
			err := r.requireRejection(e.want)
			if e.want == "" {
				if err = r.err; err == nil && r.code >= http.StatusInternalServerError {
					err = r.requireCode(http.StatusOK)
				}
			}
			if err != nil {
				t.Errorf("%s: %v", e.name, err)
			}
		}
	})
}

// acceptOf returns the value of Accept of a request.
func acceptOf(e expandingRequest) string {
	if e.name == "columns" {
		return "application/json;as=Table;v=v1;g=meta.k8s.io"
	}
	return jsonMedia
}

// TestReasonsOfDenialsAreBounded creates bindings to missing roles with names of 200 KB and sends
// requests that these bindings concern. The test pins the byte limit of denial reasons.
func TestReasonsOfDenialsAreBounded(t *testing.T) {
	x := startTenants(t)
	name := strings.Repeat("r", 200_000)
	for i := range 100 {
		x.mustCreate(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings", fmt.Sprintf(
			`{"metadata":{"name":"long-%d"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"%d%s"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}`, i, i, name))
	}
	const bound = 16 << 10 // of a response
	d := 5 * time.Second
	if x.long {
		d = 30 * time.Second
	}
	x.attackFor(t, d, func(ctx context.Context) {
		runAttackers(ctx, 30, func(ctx context.Context, i int) {
			c := x.attackerClient()
			defer c.CloseIdleConnections()
			for _, q := range []struct{ method, path, body string }{
				{method: "GET", path: "/api/v1/namespaces/b/nodes/x", body: ""},
				{
					method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
					body: `{"spec":{"resourceAttributes":{"namespace":"b","verb":"get","resource":"nodes"}}}`,
				},
				{
					method: "POST",
					path:   "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
					body:   `{"spec":{"namespace":"b"}}`,
				},
			} {
				r := x.sendAndRead(c, q.method, q.path, jsonMedia, q.body)
				if r.err == nil && len(r.body) > bound && !strings.Contains(q.path, "rules") {
					t.Errorf("%s %s: got a response of %d bytes, want at most 16 KiB", q.method, q.path, len(r.body))
				}
				if r.code >= http.StatusInternalServerError {
					t.Errorf("%s %s: %v", q.method, q.path, r.requireCode(http.StatusOK))
				}
			}
			pauseAttacker(ctx)
		})
	})
}
