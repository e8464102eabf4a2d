package hostile

import (
	"cmp"
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
	name       string
	method     string // default POST
	path, body string
	media      string // media type of the body, default JSON
	accept     string // value of the header Accept, default JSON
	want       string // part of the 4xx response; if empty, any response except 5xx passes
}

// namespacePath is the path of the attacker's namespace in the core API group.
const namespacePath = "/api/v1/namespaces/b/"

// tableMedia requests a list in the form of a table, for which the server evaluates the columns.
const tableMedia = "application/json;as=Table;v=v1;g=meta.k8s.io"

// rejectedExponent is a part of the message about a quantity with a large exponent.
const rejectedExponent = "exponent of quantity"

// costlyQuantities returns requests with a quantity that takes hours to compute.
func costlyQuantities() []expandingRequest {
	const q = "1e-2147483647"
	spec := `"spec":{"containers":[{"name":"a","image":"b","resources":{"limits":{"cpu":"` + q + `"}}}]}`
	document := func(apiVersion, kind, rest string) string {
		return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"q"},` + rest + `}`
	}
	container := protobufField(1, "a") + protobufField(2, "b") + protobufField(8,
		protobufField(1, protobufField(1, "cpu")+protobufField(2, protobufField(1, q))))
	pod := protobufEnvelope("v1", "Pod", protobufField(1, protobufField(1, "q"))+protobufField(2, protobufField(2, container)))
	patch := `{"spec":{"hard":{"cpu":"` + q + `"}}}`
	hpa := "/apis/autoscaling/v1/namespaces/b/horizontalpodautoscalers"
	return []expandingRequest{
		{
			name: "create",
			path: namespacePath + "pods",
			body: document("v1", "Pod", spec),
			want: rejectedExponent,
		},
		{
			name: "create with space",
			path: namespacePath + "pods",
			body: strings.Replace(document("v1", "Pod", spec), q, q+" ", 1),
			want: rejectedExponent,
		},
		{
			name: "dry run",
			path: namespacePath + "pods?dryRun=All",
			body: document("v1", "Pod", spec),
			want: rejectedExponent,
		},
		{
			name:  "YAML",
			path:  namespacePath + "pods",
			media: yamlMedia,
			body:  "apiVersion: v1\nkind: Pod\nmetadata: {name: q}\nspec: {containers: [{name: a, image: b, resources: {limits: {cpu: '1\\x65-2147483647'}}}]}",
		},
		{name: "protobuf", path: namespacePath + "pods", media: protoMedia, body: pod, want: rejectedExponent},
		{
			name: "template",
			path: "/apis/apps/v1/namespaces/b/deployments",
			body: document("apps/v1", "Deployment",
				`"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},`+spec+`}}`),
			want: rejectedExponent,
		},
		{
			name: "claim",
			path: namespacePath + "persistentvolumeclaims",
			body: document("v1", "PersistentVolumeClaim",
				`"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"`+q+`"}}}`),
			want: rejectedExponent,
		},
		{
			name: "divisor",
			path: namespacePath + "pods",
			body: document("v1", "Pod",
				`"spec":{"containers":[{"name":"a","image":"b","env":[{"name":"e","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"`+q+`"}}}]}]}`),
			want: rejectedExponent,
		},
		{
			name: "metric",
			path: "/apis/autoscaling/v2/namespaces/b/horizontalpodautoscalers",
			body: document("autoscaling/v2", "HorizontalPodAutoscaler",
				`"spec":{"maxReplicas":1,"scaleTargetRef":{"kind":"a","name":"b"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"AverageValue","averageValue":"`+q+`"}}}]}`),
			want: rejectedExponent,
		},
		{
			name: "metric in an annotation",
			path: hpa,
			body: `{"metadata":{"name":"q","annotations":{"autoscaling.alpha.kubernetes.io/metrics":"[{\"type\":\"Resource\",\"resource\":{\"name\":\"cpu\",\"targetAverageValue\":\"` + q + `\"}}]"}},"spec":{"maxReplicas":1,"scaleTargetRef":{"kind":"a","name":"b"}}}`,
		},
		{
			name:   "merge patch",
			method: "PATCH",
			path:   namespacePath + "resourcequotas/q",
			media:  mergePatchMedia,
			body:   patch,
			want:   rejectedExponent,
		},
		{
			name:   "strategic merge patch",
			method: "PATCH",
			path:   namespacePath + "resourcequotas/q",
			media:  strategicPatchMedia,
			body:   patch,
			want:   rejectedExponent,
		},
		{
			name:   "JSON patch",
			method: "PATCH",
			path:   namespacePath + "resourcequotas/q",
			media:  jsonPatchMedia,
			body:   `[{"op":"add","path":"/spec","value":{"hard":{"cpu":"` + q + `"}}}]`,
			want:   rejectedExponent,
		},
		{
			name:   "apply",
			method: "PATCH",
			path:   namespacePath + "resourcequotas/q?fieldManager=m",
			media:  applyMedia,
			body:   `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"cpu":"` + q + `"}}}`,
			want:   rejectedExponent,
		},
		{
			name:   "apply in CBOR",
			method: "PATCH",
			path:   namespacePath + "resourcequotas/q?fieldManager=m",
			media:  "application/apply-patch+cbor",
			body:   "\xd9\xd9\xf7\xa4japiVersionbv1dkindmResourceQuotahmetadata\xa1dnameaqdspec\xa1dhard\xa1ccpum" + q,
			want:   rejectedExponent,
		},
		{
			name:   "status",
			method: "PATCH",
			path:   namespacePath + "resourcequotas/q/status",
			media:  mergePatchMedia,
			body:   `{"status":{"used":{"cpu":"` + q + `"}}}`,
			want:   rejectedExponent,
		},
		{
			name:   "update",
			method: "PUT",
			path:   namespacePath + "resourcequotas/q",
			media:  jsonMedia,
			body:   document("v1", "ResourceQuota", `"spec":{"hard":{"cpu":"`+q+`"}}`),
			want:   rejectedExponent,
		},
		{
			name: "limit range",
			path: namespacePath + "limitranges",
			body: document("v1", "LimitRange", `"spec":{"limits":[{"type":"Container","max":{"cpu":"`+q+`"}}]}`),
			want: rejectedExponent,
		},
		{
			name: "huge pages",
			path: namespacePath + "pods",
			body: document("v1", "Pod",
				`"spec":{"containers":[{"name":"a","image":"b","resources":{"limits":{"hugepages-`+q+`":"1"}}}]}`),
		},
		{
			name: "rule of a definition",
			path: "/apis/ex.test/v1/namespaces/b/rules",
			body: `{"apiVersion":"ex.test/v1","kind":"Rule","metadata":{"name":"q"},"spec":{"q":"` + q + `","a":"x","b":"x"}}`,
			want: "exponent",
		},
		{
			name: "policy",
			path: namespacePath + "configmaps",
			body: `{"metadata":{"name":"quantity"},"data":{"q":"` + q + `"}}`,
			want: "exponent",
		},
		{
			name: "long digits",
			path: namespacePath + "resourcequotas",
			body: document("v1", "ResourceQuota", `"spec":{"hard":{"cpu":"`+strings.Repeat("9", 500_000)+`"}}`),
			want: "is longer than",
		},
	}
}

// expandingValues returns requests with values that CEL functions, patches or decoders expand.
func expandingValues() []expandingRequest {
	data := func(name string, values map[string]string) string {
		text, _ := json.Marshal(map[string]any{"metadata": map[string]string{"name": name}, "data": values})
		return string(text)
	}
	custom := func(rest string) string {
		return `{"apiVersion":"ex.test/v1","kind":"Rule","metadata":{"name":"g"},"spec":{` + rest + `}}`
	}
	long := strings.Repeat("a", 300_000)
	limits := make([]string, 40_000)
	for i := range limits {
		limits[i] = fmt.Sprintf(`"a.b/r%d":"1"`, i)
	}
	copies := make([]string, 30)
	for i := range copies {
		copies[i] = fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/k%d"}`, i)
	}
	return []expandingRequest{
		{
			name: "text added to itself",
			path: namespacePath + "configmaps",
			body: data("concat", map[string]string{"a": strings.Repeat("a", 1000)}),
			want: "cost",
		},
		{
			name: "text joined by a text",
			path: namespacePath + "configmaps",
			body: data("join", map[string]string{"a": long, "b": long}),
			want: "cost",
		},
		{
			name: "text replaced by a text",
			path: namespacePath + "configmaps",
			body: data("replace", map[string]string{"a": long, "b": long}),
			want: "cost",
		},
		{
			name: "format with a precision",
			path: namespacePath + "configmaps",
			body: data("format", map[string]string{"a": "%.2147483647f"}),
		},
		{
			name: "pattern of the client",
			path: namespacePath + "configmaps",
			body: data("matches", map[string]string{"a": long, "b": "(((((a{0,9}){0,9}){0,9}){0,9}){0,9})"}),
			want: "matches",
		},
		{
			name: "URL",
			path: namespacePath + "configmaps",
			body: data("url", map[string]string{"a": "https://[" + strings.Repeat(":", 300_000) + "]/"}),
		},
		{
			name: "network",
			path: namespacePath + "configmaps",
			body: data("cidr", map[string]string{"a": "::/0"}),
		},
		{
			name: "defaults of many elements",
			path: "/apis/ex.test/v1/namespaces/b/rules",
			body: custom(`"q":"1","a":"x","b":"x","list":[` + repeatElements("{}", 100_000) + `]`),
			want: "too large",
		},
		{
			name: "number beyond a float",
			path: "/apis/ex.test/v1/namespaces/b/rules",
			body: custom(`"q":"1","a":"x","b":"x","n":1e2147483647`),
			want: "cannot unmarshal number",
		},
		{name: "columns", method: "GET", path: "/apis/ex.test/v1/namespaces/b/rules", accept: tableMedia},
		{
			name: "integer",
			path: namespacePath + "pods",
			body: `{"metadata":{"name":"g"},"spec":{"priority":1e2147483647,"containers":[{"name":"a","image":"b"}]}}`,
			want: "cannot unmarshal number",
		},
		{
			name: "limits of a container",
			path: namespacePath + "pods?dryRun=All",
			body: `{"metadata":{"name":"g"},"spec":{"containers":[{"name":"a","image":"b","resources":{"limits":{` + strings.Join(limits, ",") + `}}}]}}`,
		},
		{
			name: "containers that a quota rejects",
			path: namespacePath + "pods?dryRun=All",
			body: `{"metadata":{"name":"g"},"spec":{"activeDeadlineSeconds":1,"containers":[` + numberedElements(`{"name":"a%d","image":"b"}`, 38_000) + `]}}`,
			want: "must specify",
		},
		{
			name: "percentage",
			path: "/apis/policy/v1/namespaces/b/poddisruptionbudgets?dryRun=All",
			body: `{"metadata":{"name":"g"},"spec":{"selector":{},"maxUnavailable":"` + strings.Repeat("9", 300_000) + `%"}}`,
		},
		{
			name: "duration",
			path: namespacePath + "configmaps",
			body: data("duration", map[string]string{"a": strings.Repeat("1h", 150_000)}),
		},
		{
			name:   "copies of copies",
			method: "PATCH",
			path:   namespacePath + "configmaps/mine",
			media:  jsonPatchMedia,
			body:   "[" + strings.Join(copies, ",") + "]",
		},
		{
			name:  "chunks of text in CBOR",
			path:  namespacePath + "configmaps",
			media: cborMedia,
			body:  "\xd9\xd9\xf7\x7f" + strings.Repeat("\x60", 1<<20) + "\xff",
			want:  "unrecognized",
		},
		{
			name:  "chunks of bytes in CBOR",
			path:  namespacePath + "configmaps",
			media: cborMedia,
			body:  "\xd9\xd9\xf7\x5f" + strings.Repeat("\x40", 1<<20) + "\xff",
			want:  "unrecognized",
		},
		{
			name:  "tags in CBOR",
			path:  namespacePath + "configmaps",
			media: cborMedia,
			body:  strings.Repeat("\xd9\xd9\xf7", 500_000) + "\xa0",
			want:  "cbor",
		},
		{
			name:  "large number in CBOR",
			path:  namespacePath + "configmaps",
			media: cborMedia,
			body:  "\xd9\xd9\xf7\xa1aa\xc2\x5a\x00\x0f\x00\x00" + strings.Repeat("\xff", 0xf0000),
			want:  "cbor",
		},
		{
			name: "nested fields of a manager",
			path: namespacePath + "configmaps",
			body: `{"metadata":{"name":"g","managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":` + nestedText(`{"f:a":`, "{}", "}", 9000) + `}]}}`,
		},
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
	const admission = "/apis/admissionregistration.k8s.io/v1/"
	// Each variable is twice as long as the one before.
	doubled := []map[string]string{{"name": "v0", "expression": "object.data.a"}}
	for i := range 40 {
		doubled = append(doubled, map[string]string{
			"name":       fmt.Sprintf("v%d", i+1),
			"expression": fmt.Sprintf("variables.v%d + variables.v%d", i, i),
		})
	}
	for name, expression := range map[string]string{
		"quantity": "quantity(object.data.q).isGreaterThan(quantity('0'))",
		"concat":   "variables.v40.size() > 0",
		"join":     "object.data.a.split('').join(object.data.b).size() > 0",
		"replace":  "object.data.a.replace('a', object.data.b).size() > 0",
		"format":   "object.data.a.format([1.0]).size() > 0",
		"matches":  "object.data.a.matches(object.data.b)",
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
		for resource, object := range map[string]any{
			"validatingadmissionpolicies": map[string]any{"metadata": map[string]string{"name": name}, "spec": spec},
			"validatingadmissionpolicybindings": map[string]any{
				"metadata": map[string]string{"name": name},
				"spec":     map[string]any{"policyName": name, "validationActions": []string{"Deny"}},
			},
		} {
			body, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			x.mustCreate(t, admission+resource, string(body))
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
	const cpu = `{"hard":{"requests.cpu":"9"},"scopes":["Terminating"]}` // no controller copies it to the status
	x.mustCreate(t, namespacePath+"resourcequotas", `{"metadata":{"name":"cpu"},"spec":`+cpu+`}`)
	if err := x.sendAndRead(x.admin, "PATCH", namespacePath+"resourcequotas/cpu/status", mergePatchMedia, `{"status":`+cpu+`}`).requireCode(200); err != nil {
		t.Fatal(err)
	}
	x.mustCreate(t, "/api/v1/namespaces/b/configmaps",
		`{"metadata":{"name":"mine"},"data":{"a":"`+strings.Repeat("x", 100_000)+`"}}`)
}

// TestValuesThatExpandAreRejectedOrBounded sends values that would take hours or gigabytes to
// process. It proves that quantities are checked before they are parsed, and that CEL expressions
// and the decoders have limits.
func TestValuesThatExpandAreRejectedOrBounded(t *testing.T) {
	tenants := startTenants(t)
	tenants.createPolicies(t)
	client := tenants.attackerClient()
	harness.Eventually(t, waitTimeout, "the policies to take effect", func() error {
		return tenants.sendAndRead(client, "POST", "/api/v1/namespaces/b/configmaps?dryRun=All", jsonMedia,
			`{"metadata":{"name":"quantity"},"data":{"q":"-1"}}`).requireCode(http.StatusUnprocessableEntity)
	})
	tenants.attackFor(t, 0, func(context.Context) {
		for _, expandingRequest := range append(costlyQuantities(), expandingValues()...) {
			method := cmp.Or(expandingRequest.method, http.MethodPost)
			media, accept := cmp.Or(expandingRequest.media, jsonMedia), cmp.Or(expandingRequest.accept, jsonMedia)
			response := tenants.sendAndRead(client, method, expandingRequest.path, media, expandingRequest.body, "Accept", accept)
			var err error
			switch {
			case expandingRequest.want != "":
				err = response.requireRejection(expandingRequest.want)
			case response.err != nil:
				err = response.err
			case response.code >= http.StatusInternalServerError:
				err = response.requireCode(http.StatusOK)
			}
			if err != nil {
				t.Errorf("%s: %v", expandingRequest.name, err)
			}
		}
	})
}

// TestReasonsOfDenialsAreBounded creates bindings to missing roles with names of 200 KB and sends
// requests that these bindings concern. It proves that a response does not contain all their names.
func TestReasonsOfDenialsAreBounded(t *testing.T) {
	tenants := startTenants(t)
	name := strings.Repeat("r", 200_000)
	for i := range 100 {
		tenants.mustCreate(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/b/rolebindings", fmt.Sprintf(
			`{"metadata":{"name":"long-%d"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"%d%s"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}`, i, i, name))
	}
	const maxResponse = 16 << 10 // bytes
	duration := 5 * time.Second
	if tenants.long {
		duration = 30 * time.Second
	}
	tenants.attackFor(t, duration, func(ctx context.Context) {
		runAttackers(ctx, 30, func(ctx context.Context, i int) {
			client := tenants.attackerClient()
			defer client.CloseIdleConnections()
			for _, test := range []struct{ method, path, body string }{
				{method: "GET", path: "/api/v1/namespaces/b/nodes/x", body: ""},
				{
					method: "POST",
					path:   "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
					body:   `{"spec":{"resourceAttributes":{"namespace":"b","verb":"get","resource":"nodes"}}}`,
				},
				{
					method: "POST",
					path:   "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
					body:   `{"spec":{"namespace":"b"}}`,
				},
			} {
				response := tenants.sendAndRead(client, test.method, test.path, jsonMedia, test.body)
				isRulesReview := strings.HasSuffix(test.path, "selfsubjectrulesreviews")
				if response.err == nil && len(response.body) > maxResponse && !isRulesReview {
					t.Errorf("%s %s: got a response of %d bytes, want at most %d", test.method, test.path, len(response.body), maxResponse)
				}
				if response.code >= http.StatusInternalServerError {
					t.Errorf("%s %s: %v", test.method, test.path, response.requireCode(http.StatusOK))
				}
			}
			pauseAttacker(ctx)
		})
	})
}
