package build

import (
	"fmt"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// TestNodePluginsRestrictNodes checks that the default plugins limit what a node
// may write to its own Node and to its pods.
func TestNodePluginsRestrictNodes(t *testing.T) {
	t.Parallel()
	api := startServer(t, withRBAC)
	node := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q}}`, name)
	}
	ownNode := asUser("system:node:n1", "system:nodes")
	made := api.mustSend(201, "POST", "/api/v1/nodes", node("n1"), ownNode...)
	if taints := fmt.Sprint(made.field("spec", "taints")); !strings.Contains(taints, "node.kubernetes.io/not-ready") {
		t.Errorf("got taints %s, want node.kubernetes.io/not-ready", taints)
	}
	response := api.mustSend(403, "POST", "/api/v1/nodes", node("n2"), ownNode...)
	const otherNode = `nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"`
	if text := response.field("message"); text != otherNode {
		t.Errorf("got message %v, want %s", text, otherNode)
	}
	api.mustSend(201, "POST", "/api/v1/namespaces/default/serviceaccounts",
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"sa"}}`)
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"nodeName":%q,"serviceAccountName":"sa","containers":[{"name":"c","image":"i"}],"volumes":[{"name":"t","projected":{"sources":[{"serviceAccountToken":{"audience":"vault","path":"t"}}]}}]}}`
	const pods = "/api/v1/namespaces/default/pods"
	api.mustSend(201, "POST", pods, fmt.Sprintf(pod, "mine", "n1"))
	api.mustSend(201, "POST", pods, fmt.Sprintf(pod, "theirs", "n2"))
	api.mustSend(403, "DELETE", pods+"/theirs", "", ownNode...)
	api.mustSend(200, "DELETE", pods+"/mine?gracePeriodSeconds=0", "", ownNode...)
	api.mustSend(404, "DELETE", pods+"/mine", "", ownNode...)
}

// TestNodesWriteOnlyOwnResourceSlices covers both versions of the kind, which is off by default.
func TestNodesWriteOnlyOwnResourceSlices(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		withRBAC(options)
		if err := options.RuntimeConfig.Set("resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"); err != nil {
			t.Fatal(err)
		}
	})
	ownNode := asUser("system:node:n1", "system:nodes")
	for _, version := range []string{"v1beta1", "v1beta2"} {
		path := "/apis/resource.k8s.io/" + version + "/resourceslices"
		slice := func(name, node string) string {
			return fmt.Sprintf(`{"apiVersion":"resource.k8s.io/%s","kind":"ResourceSlice","metadata":{"name":%q},"spec":{"driver":"d.example.com","nodeName":%q,"pool":{"name":"p","resourceSliceCount":1}}}`,
				version, name, node)
		}
		response := api.mustSend(403, "POST", path, slice("forged", "n2"), ownNode...)
		text := response.field("message")
		if text != `resourceslices.resource.k8s.io "forged" is forbidden: can only create ResourceSlice with the same NodeName as the requesting node` {
			t.Errorf("got message %v, want one about the NodeName of the ResourceSlice", text)
		}
		api.mustSend(201, "POST", path, slice("mine-"+version, "n1"), ownNode...)
		api.mustSend(201, "POST", path, slice("theirs-"+version, "n2"))
		api.waitUntil("seen", func() bool { return api.get(path+"/mine-"+version, ownNode...).code == 200 })
		api.mustSend(403, "GET", path+"/theirs-"+version, "", ownNode...)
		api.mustSend(403, "DELETE", path+"/theirs-"+version, "", ownNode...)
		api.mustSend(403, "GET", path, "", ownNode...)
		api.mustSend(403, "GET", path+"?fieldSelector=spec.nodeName%3Dn2", "", ownNode...)
		api.mustSend(200, "GET", path+"?fieldSelector=spec.nodeName%3Dn1", "", ownNode...)
		api.mustSend(200, "DELETE", path+"?fieldSelector=spec.nodeName%3Dn1", "", ownNode...)
		api.mustSend(404, "GET", path+"/mine-"+version, "")
		api.mustSend(200, "GET", path+"/theirs-"+version, "")
	}
}
