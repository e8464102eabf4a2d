package hostile

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
)

// attack is one kind of attack. Each of its attackers calls run in a loop.
type attack struct {
	name      string
	attackers int
	run       func(ctx context.Context, x *target, r *rand.Rand)
}

// exhaustionRequest is a small request that costs the server much to process.
type exhaustionRequest struct {
	name, method, path, media, body string
}

// repeatElements returns an element n times, separated by commas.
func repeatElements(element string, n int) string { return strings.Repeat(element+",", n-1) + element }

// numberedElements formats the numbers below n, separated by commas.
func numberedElements(format string, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// nestedText returns inner between a number of opening and closing texts.
func nestedText(open, inner, suffix string, levels int) string {
	return strings.Repeat(open, levels) + inner + strings.Repeat(suffix, levels)
}

// objectJSON returns an object with the name costly. fields is appended to its fields.
func objectJSON(kind, fields string) string {
	version := map[string]string{"ControllerRevision": "apps/v1"}[kind]
	if version == "" {
		version = "v1"
	}
	return `{"kind":"` + kind + `","apiVersion":"` + version + `","metadata":{"name":"costly"}` + fields + `}`
}

const (
	configMaps, pods    = largeList, "/api/v1/namespaces/hostile/pods"
	jsonMedia           = "application/json"
	yamlMedia           = "application/yaml"
	cborMedia           = "application/cbor"
	protoMedia          = "application/vnd.kubernetes.protobuf"
	applyMedia          = "application/apply-patch+yaml"
	mergePatchMedia     = "application/merge-patch+json"
	strategicPatchMedia = "application/strategic-merge-patch+json"
	jsonPatchMedia      = "application/json-patch+json"
)

// exhaustionRequests returns the requests to send. None of them stores an object.
func exhaustionRequests() []exhaustionRequest {
	aliases := "kind: ConfigMap\napiVersion: v1\nmetadata: {name: costly}\nl0: &l0 [x]\n"
	for i := range 9 {
		aliases += fmt.Sprintf("l%d: &l%d [%s]\n", i+1, i+1, repeatElements(fmt.Sprintf("*l%d", i), 9))
	}
	text := strings.Repeat("x", 1<<20)
	repeated := fmt.Sprintf("kind: ConfigMap\napiVersion: v1\na: &a %s\nb: [%s]\n", text, repeatElements("*a", 20_000))
	deep := nestedText(`{"a":`, "1", "}", 9000)
	// field encodes a length-delimited field of protobuf.
	field := func(number byte, content string) string {
		return string(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(content)))) + content
	}
	messages := "k8s\x00" + field(1, field(1, "v1")+field(2, "Pod")) + field(2, field(2, strings.Repeat("\x12\x00", 1_400_000)))
	requests := []exhaustionRequest{
		{"aliases", "POST", configMaps, yamlMedia, aliases},
		{"aliases of a long text", "POST", configMaps, yamlMedia, repeated},
		{"aliases that are applied", "PATCH", configMaps + "/costly?fieldManager=m", applyMedia, repeated},
		{"deep JSON", "POST", configMaps, jsonMedia, objectJSON("ConfigMap", `,"x":`+deep)},
		{"deep YAML", "POST", configMaps, yamlMedia, "x: " + nestedText("[", "", "]", 9000)},
		{"deep CBOR", "POST", configMaps, cborMedia, "\xd9\xd9\xf7\xa1\x41a" + strings.Repeat("\x81", 1<<20) + "\x01"},
		{"long CBOR", "POST", configMaps, cborMedia, "\xd9\xd9\xf7\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"},
		{"lists of YAML", "POST", configMaps, yamlMedia, "a:\n" + strings.Repeat("- []\n", 600_000)},
		{"empty containers", "POST", pods, jsonMedia,
			objectJSON("Pod", `,"spec":{"containers":[`+repeatElements("{}", 1_000_000)+`]}`)},
		{"errors", "POST", pods, jsonMedia, objectJSON("Pod", `,"spec":{"containers":[`+repeatElements("{}", 120_000)+`]}`)},
		{"messages of protobuf", "POST", pods, protoMedia, messages},
		{"unknown fields", "POST", configMaps + "?fieldValidation=Strict", jsonMedia,
			objectJSON("ConfigMap", `,"x":{`+numberedElements(`"k%d":1`, 200_000)+`}`)},
		{"many labels", "POST", configMaps + "?dryRun=All", jsonMedia,
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"costly","labels":{` +
				numberedElements(`"k%d":"v"`, 200_000) + `}}}`},
		{"many keys", "POST", configMaps + "?dryRun=All", jsonMedia,
			objectJSON("ConfigMap", `,"data":{`+numberedElements(`"k%d":"v"`, 200_000)+`}`)},
		{"many owners", "POST", configMaps + "?dryRun=All", jsonMedia,
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"costly","ownerReferences":[` +
				numberedElements(`{"uid":"%d"}`, 120_000) + `]}}`},
		{"many fields applied", "PATCH", configMaps + "/costly?fieldManager=m&dryRun=All", applyMedia,
			objectJSON("ConfigMap", `,"data":{`+numberedElements(`"k%d":"v"`, 200_000)+`}`)},
		{"many containers applied", "PATCH", pods + "/costly?fieldManager=m&dryRun=All", applyMedia,
			objectJSON("Pod", `,"spec":{"containers":[`+numberedElements(`{"name":"c%d"}`, 120_000)+`]}`)},
		{"a deep merge", "PATCH", configMaps + "/large-0?dryRun=All", mergePatchMedia,
			nestedText(`{"a":`, `"`+text+`"`, "}", 450)},
		{"a long list merged", "PATCH", configMaps + "/large-0?dryRun=All", strategicPatchMedia,
			`{"metadata":{"finalizers":[` + numberedElements(`"a/f%d"`, 200_000) + `]}}`},
		{"a merge key that is a list", "PATCH", configMaps + "/large-0?dryRun=All", strategicPatchMedia,
			`{"metadata":{"ownerReferences":[{"uid":[null]},{"uid":[null]}]}}`},
		{"many operations", "PATCH", configMaps + "/large-0?dryRun=All", jsonPatchMedia,
			"[" + numberedElements(`{"op":"add","path":"/data/k%d","value":"v"}`, 10_000) + "]"},
		{"too many operations", "PATCH", configMaps + "/large-0?dryRun=All", jsonPatchMedia,
			"[" + repeatElements(`{"op":"remove","path":"/data/k"}`, 80_000) + "]"},
		{"copies", "PATCH", configMaps + "/large-0?dryRun=All", jsonPatchMedia,
			"[" + numberedElements(`{"op":"copy","from":"/data","path":"/data/k%d"}`, 100) + "]"},
		{"a review of many wrong requirements", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", jsonMedia,
			`{"spec":{"resourceAttributes":{"verb":"get","resource":"pods","labelSelector":{"requirements":[` +
				repeatElements("{}", 2600) + `]}}}}`},
		{"few empty containers", "POST", pods, jsonMedia,
			objectJSON("Pod", `,"spec":{"containers":[`+repeatElements("{}", 600)+`]}`)},
		{"many wrong labels", "POST", configMaps + "?dryRun=All", jsonMedia,
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"costly","labels":{` +
				numberedElements(`"-k%d":"-"`, 2600) + `}}}`},
		{"a short message of many containers", "POST", pods, protoMedia,
			"k8s\x00" + field(1, field(1, "v1")+field(2, "Pod")) + field(2, field(2, strings.Repeat("\x12\x00", 20_000)))},
		{"short aliases of many values", "POST", configMaps, yamlMedia,
			"kind: ConfigMap\napiVersion: v1\na: &a [" + repeatElements("1", 300) + "]\nb: [" + repeatElements("*a",
				200) + "]\n"},
		{"chains of objects", "POST", configMaps, jsonMedia,
			objectJSON("ConfigMap", `,"x":[`+repeatElements(nestedText(`{"a":`, "1", "}", 450), 21)+`]`)},
		{"a deep list, pretty-printed", "POST",
			"/apis/apps/v1/namespaces/hostile/controllerrevisions?dryRun=All&pretty=true", jsonMedia,
			objectJSON("ControllerRevision", `,"revision":1,"data":`+nestedText("[", repeatElements("1", 200_000), "]", 450))},
	}
	for name, q := range map[string]string{
		"labelSelector": numberedElements("a%d", 50_000), "fieldSelector": numberedElements("metadata.name!=a%d", 20_000),
		"continue": strings.Repeat("A", 500_000), "resourceVersion": strings.Repeat("9", 500_000),
	} {
		requests = append(requests, exhaustionRequest{"a large " + name, "GET", configMaps + "?" + name + "=" + url.QueryEscape(q), "", ""})
		requests = append(requests, exhaustionRequest{"a watch with a large " + name, "GET",
			configMaps + "?watch=1&timeoutSeconds=1&" + name + "=" + url.QueryEscape(q), "", ""})
	}
	return requests
}

// exhaustionAttacks returns one attack that sends all exhaustion requests or, if each is true, one
// attack per request.
func exhaustionAttacks(separately bool) []attack {
	combined := exhaustionRequests()
	if !separately {
		return []attack{exhaustionAttack("exhaustion", combined)}
	}
	var attacks []attack
	for _, b := range combined {
		attacks = append(attacks, exhaustionAttack("exhaustion: "+b.name, []exhaustionRequest{b}))
	}
	return attacks
}

// exhaustionAttack returns an attack that sends random ones of the requests.
func exhaustionAttack(name string, requests []exhaustionRequest) attack {
	return attack{name, 8, func(ctx context.Context, x *target, r *rand.Rand) {
		b := requests[r.IntN(len(requests))]
		req, err := http.NewRequest(b.method, x.url+b.path, strings.NewReader(b.body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", b.media)
		c := x.attackerClient()
		defer c.CloseIdleConnections()
		if x.sendAttack(ctx, c, req) == http.StatusGatewayTimeout {
			x.recordResponse(b.name+" timed out", http.StatusInternalServerError, nil)
		}
	}}
}
