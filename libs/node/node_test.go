package node_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"pgregory.net/rapid"

	"binnacle/libs/authorizer"
	"binnacle/libs/features"
	"binnacle/libs/node"
)

func meta(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func pod(name, onNode string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta("a", name), Spec: corev1.PodSpec{NodeName: onNode}}
	if change != nil {
		change(p)
	}
	return p
}

func localRef(name string) *corev1.LocalObjectReference {
	return &corev1.LocalObjectReference{Name: name}
}

// addAllReferences adds a reference to one object in each way that a pod can.
func addAllReferences(pod *corev1.Pod) {
	ref := func(n string) corev1.LocalObjectReference { return *localRef(n) }
	namedClaim := "named"
	createdClaim, unusedClaim := "made", "others"
	pod.Spec.ServiceAccountName = "sa"
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{ref("pull"), ref("")}
	env := func(suffix string) corev1.Container {
		return corev1.Container{
			EnvFrom: []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("from" + suffix)}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("mapfrom" + suffix)}},
			},
			Env: []corev1.EnvVar{
				{Value: "plain"},
				{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("env" + suffix)}}},
				{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("mapenv" + suffix)}}},
			},
		}
	}
	pod.Spec.Containers = []corev1.Container{env("")}
	pod.Spec.InitContainers = []corev1.Container{env("-init")}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(env("-debug"))}}
	for _, volumeSource := range []corev1.VolumeSource{
		{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}},
		{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("mapvolume")}},
		{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: ref("projected")}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("mapprojected")}},
		}}},
		{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure"}},
		{CephFS: &corev1.CephFSVolumeSource{SecretRef: localRef("ceph")}},
		{Cinder: &corev1.CinderVolumeSource{SecretRef: localRef("cinder")}},
		{FlexVolume: &corev1.FlexVolumeSource{SecretRef: localRef("flex")}},
		{RBD: &corev1.RBDVolumeSource{SecretRef: localRef("rbd")}},
		{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: localRef("scaleio")}},
		{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: localRef("iscsi")}},
		{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: localRef("storageos")}},
		{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: localRef("csi")}},
		{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}},
		{CephFS: &corev1.CephFSVolumeSource{}},
	} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: volumeSource})
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name:         "scratch",
		VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}},
	})
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x", ResourceClaimName: &namedClaim}, {Name: "y"}, {Name: "z"}}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{
		{Name: "other", ResourceClaimName: &unusedClaim},
		{Name: "y", ResourceClaimName: &createdClaim},
		{Name: "z"},
	}
}

func volume(name, claim string, source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: meta("", name), Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
	if claim != "" {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "a", Name: claim}
	}
	return v
}

func csi() corev1.PersistentVolumeSource {
	ref := func(n string) *corev1.SecretReference { return &corev1.SecretReference{Namespace: "csi", Name: n} }
	return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		NodePublishSecretRef: ref("publish"), NodeStageSecretRef: ref("stage"), NodeExpandSecretRef: ref("expand"),
		ControllerPublishSecretRef: ref("controller"), ControllerExpandSecretRef: ref("controller"),
	}}
}

// TestGraphFollowsReferencesOfPods checks which objects belong to a node, and that removed objects
// leave no entries.
func TestGraphFollowsReferencesOfPods(t *testing.T) {
	graph := node.NewGraph()
	graph.Set(pod("p", "n1", addAllReferences))
	graph.Set(pod("mirror", "n2", func(p *corev1.Pod) {
		addAllReferences(p)
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}))
	graph.Set(pod("pending", "", addAllReferences))
	graph.Set(volume("pv", "claim", csi()))
	graph.Set(volume("free", "", csi()))
	graph.Set(volume("azure", "claim",
		corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "pvazure"}}))
	graph.Set(&storagev1.VolumeAttachment{ObjectMeta: meta("", "va"), Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}})
	n1 := "n1"
	graph.Set(&resourcev1beta1.ResourceSlice{ObjectMeta: meta("", "slice"), Spec: resourcev1beta1.ResourceSliceSpec{NodeName: n1}})
	graph.Set(&resourcev1beta2.ResourceSlice{ObjectMeta: meta("", "newer"), Spec: resourcev1beta2.ResourceSliceSpec{NodeName: &n1}})
	graph.Set(&resourcev1beta2.ResourceSlice{ObjectMeta: meta("", "shared")})
	want := map[node.Kind]string{
		node.Secret: "a/pull a/from a/env a/from-init a/env-init a/from-debug a/env-debug a/volume a/projected a/azure a/ceph a/cinder a/flex a/rbd " +
			"a/scaleio a/iscsi a/storageos a/csi csi/publish csi/stage csi/expand a/pvazure",
		node.ConfigMap:             "a/mapfrom a/mapenv a/mapfrom-init a/mapenv-init a/mapfrom-debug a/mapenv-debug a/mapvolume a/mapprojected",
		node.PersistentVolumeClaim: "a/claim a/p-scratch",
		node.ResourceClaim:         "a/named a/made",
		node.ServiceAccount:        "a/sa",
		node.PersistentVolume:      "/pv /azure",
		node.Pod:                   "a/p",
		node.VolumeAttachment:      "/va",
		node.ResourceSlice:         "/slice /newer",
	}
	const belong, doNotBelong = true, false
	// requireAll checks that all objects of want belong to a node, or that none does.
	requireAll := func(onNode string, belongs bool) {
		t.Helper()
		for kind, names := range want {
			for _, n := range strings.Fields(names) {
				ns, name, _ := strings.Cut(n, "/")
				if got := graph.HasReference(onNode, kind, ns, name); got != belongs {
					t.Errorf("HasReference(%q, kind %d, %s) = %t, want %t", onNode, kind, n, got, belongs)
				}
			}
		}
	}
	requireAll("n1", belong)
	requireAll("n2", doNotBelong)
	requireAll("", doNotBelong)
	for _, test := range []struct {
		name              string
		node              string
		kind              node.Kind
		namespace, object string
		want              bool
	}{
		{name: "mirror pod", node: "n2", kind: node.Pod, namespace: "a", object: "mirror", want: true},
		{name: "a controller's secret", node: "n1", kind: node.Secret, namespace: "csi", object: "controller"},
		{name: "unbound volume", node: "n1", kind: node.PersistentVolume, object: "free"},
		{name: "slice without a node", node: "", kind: node.ResourceSlice, object: "shared"},
		{name: "secret with a slash in its name", node: "n1", kind: node.Secret, namespace: "a", object: "csi/x"},
	} {
		if got := graph.HasReference(test.node, test.kind, test.namespace, test.object); got != test.want {
			t.Errorf("%s: HasReference(%q, kind %d, %q, %q) = %t, want %t", test.name, test.node, test.kind, test.namespace, test.object, got, test.want)
		}
	}
	for kind, name := range map[node.Kind]string{node.Pod: "pending", node.Secret: "", node.ResourceClaim: "others"} {
		if graph.HasReference("", kind, "a", name) || graph.HasReference("n1", kind, "a", name) {
			t.Errorf("HasReference(kind %d, %q) = true, want false for an object that no node needs", kind, name)
		}
	}
	if graph.HasReference("", node.Pod, "a", "absent") || graph.HasReference("", node.VolumeAttachment, "", "absent") {
		t.Error("HasReference() = true for a missing object and a node without a name, want false")
	}
	// Retain for one kind does not affect other kinds.
	graph.Retain(node.ResourceSlice, func(_, name string) bool { return name == "slice" || name == "newer" })
	graph.Set(pod("pv", "n1", nil))
	graph.Retain(node.PersistentVolume, func(namespace, name string) bool { return namespace == "" && name != "free" })
	requireAll("n1", belong)
	graph.Delete(node.Pod, "a", "pv")
	// A secret that two volumes need remains while one of them exists.
	graph.Set(volume("second", "claim", csi()))
	graph.Delete(node.PersistentVolume, "", "second")
	requireAll("n1", belong)
	// Entries are removed with the last object that references them.
	graph.Set(pod("p", "n1", addAllReferences)) // an update without changes
	graph.Delete(node.Pod, "a", "p")
	graph.Delete(node.VolumeAttachment, "", "va")
	graph.Retain(node.ResourceSlice, func(string, string) bool { return false })
	requireAll("n1", doNotBelong)
	graph.Delete(node.Pod, "a", "mirror")
	for _, v := range []string{"pv", "free", "azure"} {
		graph.Delete(node.PersistentVolume, "", v)
	}
	if n := node.Size(graph); n != 0 {
		t.Errorf("%d entries remain, want 0", n)
	}
}

// TestSetPanicsOnOtherObjects checks that Set panics for objects of other kinds.
func TestSetPanicsOnOtherObjects(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Set() of a Node did not panic, want a panic")
		}
	}()
	node.NewGraph().Set(&corev1.Node{})
}

// TestRandomChangesAgreeWithNewGraph compares a graph after random changes with a new graph of the
// remaining objects.
func TestRandomChangesAgreeWithNewGraph(t *testing.T) {
	names := []string{"x", "y", "z"}
	rapid.Check(t, func(t *rapid.T) {
		graph := node.NewGraph()
		pods, volumes := map[string]*corev1.Pod{}, map[string]*corev1.PersistentVolume{}
		for range rapid.IntRange(1, 25).Draw(t, "changes") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			switch rapid.IntRange(0, 5).Draw(t, "change") {
			case 0:
				graph.Delete(node.Pod, "a", name)
				delete(pods, name)
			case 1:
				graph.Delete(node.PersistentVolume, "", name)
				delete(volumes, name)
			case 2:
				volumes[name] = volume(name, rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "claim"), csi())
				graph.Set(volumes[name])
			default:
				pods[name] = pod(name, rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"), func(p *corev1.Pod) {
					for _, s := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 3).Draw(t, "refs") {
						p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, *localRef(s))
						p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
							PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s},
						}})
					}
				})
				graph.Set(pods[name])
			}
		}
		fresh := node.NewGraph()
		for _, p := range pods {
			fresh.Set(p)
		}
		for _, v := range volumes {
			fresh.Set(v)
		}
		for _, nodeName := range []string{"", "n1", "n2"} {
			for kind := node.Pod; kind <= node.ResourceSlice; kind++ {
				for _, ns := range []string{"", "a", "csi"} {
					for _, name := range append(names, "publish", "stage") {
						if got, want := graph.HasReference(nodeName, kind, ns, name), fresh.HasReference(nodeName, kind, ns, name); got != want {
							t.Fatalf("kind %d %s/%s on %q: %v, want %v", kind, ns, name, nodeName, got, want)
						}
					}
				}
			}
		}
	})
}

// TestNodeAuthorizerAllowsOnlyRelatedObjects checks what the authorizer of nodes allows, and its
// reasons.
func TestNodeAuthorizerAllowsOnlyRelatedObjects(t *testing.T) {
	graph := node.NewGraph()
	graph.Set(pod("p", "n1", addAllReferences))
	authz := node.NewAuthorizer(graph, features.New().Enabled)
	graph.Set(&resourcev1beta1.ResourceSlice{ObjectMeta: meta("", "own"), Spec: resourcev1beta1.ResourceSliceSpec{NodeName: "n1"}})
	graph.Set(&resourcev1beta1.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1beta1.ResourceSliceSpec{NodeName: "n2"}})
	const allow, noRelationship = "allow", "no relationship found between node 'n1' and this object"
	const slices = "can only list/watch/deletecollection resourceslices with nodeName field selector"
	for _, test := range []struct{ request, selector, want string }{
		{request: "get secrets a/pull", want: allow},
		{request: "list secrets a/pull", want: allow},
		{request: "watch configmaps a/mapenv", want: allow},
		{request: "get secrets a/other", want: noRelationship},
		{request: "get secrets b/pull", want: noRelationship},
		{request: "list secrets a", want: "No Object name found"},
		{request: "list secrets", want: "can only read namespaced object of this type"},
		{request: "delete secrets a/pull", want: "can only read resources of this type"},
		{request: "get secrets/x a/pull", want: "cannot read subresource"},
		{request: "get persistentvolumeclaims a/claim", want: allow},
		{request: "list persistentvolumeclaims a/claim", want: "can only get individual resources of this type"},
		{request: "get persistentvolumeclaims/x a/claim", want: "cannot get subresource"},
		{request: "patch persistentvolumeclaims/status a/claim", want: allow},
		{request: "get persistentvolumeclaims/status a/claim", want: "can only get/update/patch this type"},
		{request: "update persistentvolumeclaims/status a/other", want: noRelationship},
		{request: "get persistentvolumes -/pv", want: noRelationship},
		{request: "get resource.k8s.io:resourceclaims a/named", want: allow},
		{request: "get storage.k8s.io:volumeattachments -/va", want: noRelationship},
		{request: "create serviceaccounts/token a/sa", want: allow},
		{request: "create serviceaccounts/token a/x", want: noRelationship},
		{request: "create serviceaccounts/token a", want: "can only create tokens for individual service accounts"},
		{request: "get serviceaccounts a/sa", want: "not allowed to get service accounts"},
		{request: "list serviceaccounts a", want: "can only create tokens for individual service accounts"},
		{request: "get certificates.k8s.io:clustertrustbundles -/b", want: ""},
		{request: "create serviceaccounts a/sa", want: "can only create token subresource of serviceaccount"},
		{request: "update coordination.k8s.io:leases kube-node-lease/n1", want: allow},
		{request: "create coordination.k8s.io:leases kube-node-lease", want: allow},
		{request: "get coordination.k8s.io:leases kube-node-lease/n2",
			want: "can only access node lease with the same name as the requesting node"},
		{request: "get coordination.k8s.io:leases a/n1", want: `can only access leases in the "kube-node-lease" system namespace`},
		{
			request: "list coordination.k8s.io:leases kube-node-lease",
			want:    "can only get, create, update, patch, or delete a node lease",
		},
		{request: "create storage.k8s.io:csinodes", want: allow},
		{request: "get storage.k8s.io:csinodes -/n2", want: "can only access CSINode with the same name as the requesting node"},
		{request: "get storage.k8s.io:csinodes -/n1", want: allow},
		{request: "delete storage.k8s.io:csinodes -/n1", want: allow},
		{request: "list storage.k8s.io:csinodes", want: "can only get, create, update, patch, or delete a CSINode"},
		{request: "get storage.k8s.io:csinodes/x -/n1", want: "cannot authorize CSINode subresources"},
		{request: "get nodes -/n1", want: allow},
		{request: "watch nodes -/n1", want: allow},
		{request: "create nodes", want: allow},
		{request: "patch nodes/status -/n1", want: allow},
		{request: "get nodes -/n2", want: "node 'n1' cannot read 'n2', only its own Node object"},
		{request: "list nodes", want: "node 'n1' cannot read all nodes, only its own Node object"},
		{request: "delete nodes -/n1", want: ""},
		{request: "get nodes/status -/n1", want: ""},
		{request: "get nodes/proxy -/n1", want: ""},
		{request: "get pods a/p", want: allow},
		{request: "get pods a/q", want: noRelationship},
		{request: "list pods", selector: "spec.nodeName=n1", want: allow},
		{request: "watch pods a", selector: "spec.nodeName==n1", want: allow},
		{request: "list pods", selector: "spec.nodeName=n2", want: "can only list/watch pods with spec.nodeName field selector"},
		{request: "list pods", selector: "spec.nodeName!=n1", want: "can only list/watch pods with spec.nodeName field selector"},
		{request: "watch pods a/p", want: allow},
		{request: "create pods a", want: allow},
		{request: "delete pods a/p", want: allow},
		{request: "update pods a/p", want: ""},
		{request: "patch pods/status a/p", want: allow},
		{request: "get pods/status a/p", want: ""},
		{request: "create pods/eviction a/p", want: allow},
		{request: "get pods/eviction a/p", want: ""},
		{request: "create pods/binding a/p", want: ""},
		{request: "list resource.k8s.io:resourceslices", selector: "spec.nodeName=n1", want: allow},
		{request: "deletecollection resource.k8s.io:resourceslices", selector: "spec.driver=d,spec.nodeName=n1", want: allow},
		{request: "watch resource.k8s.io:resourceslices", selector: "spec.nodeName=n2", want: slices},
		{request: "list resource.k8s.io:resourceslices", selector: "nodeName=n1", want: slices},
		{request: "list resource.k8s.io:resourceslices", want: slices},
		{request: "get resource.k8s.io:resourceslices -/own", want: allow},
		{request: "delete resource.k8s.io:resourceslices -/own", want: allow},
		{request: "create resource.k8s.io:resourceslices", want: allow},
		{request: "get resource.k8s.io:resourceslices -/s", want: noRelationship},
		{request: "proxy resource.k8s.io:resourceslices -/s",
			want: "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"},
		{request: "get resource.k8s.io:resourceslices/x -/s", want: "cannot authorize ResourceSlice subresources"},
		{request: "list services", want: allow},
		{request: "create events a", want: allow},
		{request: "list apps:deployments a", want: ""},
		{request: "get /metrics", want: ""},
	} {
		user := &authorizer.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}
		words := strings.Fields(test.request)
		attributes := &authorizer.Attributes{User: user, Verb: words[0]}
		if strings.HasPrefix(words[1], "/") {
			attributes.Path = words[1]
		} else {
			attributes.Resource = true
			remaining := words[1]
			if group, resource, ok := strings.Cut(remaining, ":"); ok {
				attributes.Group, remaining = group, resource
			}
			attributes.ResourceName, attributes.Subresource, _ = strings.Cut(remaining, "/")
			if len(words) > 2 {
				attributes.Namespace, attributes.Name, _ = strings.Cut(words[2], "/")
				attributes.Namespace = strings.TrimPrefix(attributes.Namespace, "-")
			}
		}
		if test.selector != "" {
			attributes.FieldSelector = fields.ParseSelectorOrDie(test.selector).Requirements()
		}
		decision, reason, err := authz.Authorize(context.Background(), attributes)
		got := reason
		if decision == authorizer.Allow {
			got = allow
		}
		if err != nil || got != test.want || decision == authorizer.Deny {
			t.Errorf("%s %s: %q %v, want %q", test.request, test.selector, got, err, test.want)
		}
	}
}

// TestNodeReadsWithoutSelectorGate checks how nodes read without the gate
// AuthorizeNodeWithSelectors.
func TestNodeReadsWithoutSelectorGate(t *testing.T) {
	authz := node.NewAuthorizer(node.NewGraph(), func(features.Gate) bool { return false })
	user := &authorizer.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}
	for _, test := range []struct {
		group, resource, verb string
		want                  authorizer.Decision
	}{
		{group: "", resource: "pods", verb: "list", want: authorizer.Allow},
		{group: "", resource: "nodes", verb: "watch", want: authorizer.Allow},
		{group: "", resource: "nodes", verb: "delete", want: authorizer.NoOpinion},
		{group: "", resource: "secrets", verb: "list", want: authorizer.NoOpinion},
		{group: "metrics.k8s.io", resource: "nodes", verb: "list", want: authorizer.NoOpinion},
		{group: "", resource: "pods/log", verb: "get", want: authorizer.NoOpinion},
		{group: "resource.k8s.io", resource: "resourceslices", verb: "list", want: authorizer.Allow},
		{group: "resource.k8s.io", resource: "resourceslices", verb: "get", want: authorizer.NoOpinion},
	} {
		resource, sub, _ := strings.Cut(test.resource, "/")
		decision, _, err := authz.Authorize(t.Context(), &authorizer.Attributes{
			User:         user,
			Verb:         test.verb,
			Resource:     true,
			Group:        test.group,
			ResourceName: resource,
			Subresource:  sub,
		})
		if err != nil || decision != test.want {
			t.Errorf("%s %s: got %v, %v, want %v", test.verb, test.resource, decision, err, test.want)
		}
	}
}

// TestFeatureGatesExtendReadsOfNodes checks the resources that the gates
// ClusterTrustBundle and KubeletServiceAccountTokenForCredentialProviders add.
func TestFeatureGatesExtendReadsOfNodes(t *testing.T) {
	graph := node.NewGraph()
	graph.Set(pod("p", "n1", addAllReferences))
	gates := features.New()
	if err := gates.Set("ClusterTrustBundle=true,KubeletServiceAccountTokenForCredentialProviders=true"); err != nil {
		t.Fatal(err)
	}
	authz := node.NewAuthorizer(graph, gates.Enabled)
	user := &authorizer.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}
	for _, test := range []struct {
		verb, group, resource, namespace, name string
		want                                   authorizer.Decision
	}{
		{verb: "list", group: "certificates.k8s.io", resource: "clustertrustbundles", want: authorizer.Allow},
		{verb: "update", group: "certificates.k8s.io", resource: "clustertrustbundles", name: "b", want: authorizer.NoOpinion},
		{verb: "get", resource: "serviceaccounts", namespace: "a", name: "sa", want: authorizer.Allow},
		{verb: "get", resource: "serviceaccounts", namespace: "a", name: "other", want: authorizer.NoOpinion},
		{verb: "list", resource: "serviceaccounts", namespace: "a", name: "sa", want: authorizer.NoOpinion},
	} {
		attributes := &authorizer.Attributes{
			User:         user,
			Verb:         test.verb,
			Resource:     true,
			Group:        test.group,
			ResourceName: test.resource,
			Namespace:    test.namespace,
			Name:         test.name,
		}
		if d, reason, err := authz.Authorize(t.Context(), attributes); err != nil || d != test.want {
			t.Errorf("%s %s %s: got %v, reason %q, error %v, want %v", test.verb, test.resource, test.name, d, reason, err, test.want)
		}
	}
}

// TestAuthorizerIgnoresOtherUsers checks which combinations of user name and group count as a node.
func TestAuthorizerIgnoresOtherUsers(t *testing.T) {
	authz := node.NewAuthorizer(node.NewGraph(), features.New().Enabled)
	nodes := []string{"system:nodes"}
	for _, test := range []struct {
		user   *authorizer.User
		want   authorizer.Decision
		reason string
	}{
		{user: &authorizer.User{Name: "system:node:n", Groups: nodes}, want: authorizer.Allow},
		{user: &authorizer.User{Name: "system:node:n"}, want: authorizer.NoOpinion},
		{user: &authorizer.User{Name: "kubelet", Groups: nodes}, want: authorizer.NoOpinion},
		{
			user:   &authorizer.User{Name: "system:node:", Groups: nodes},
			want:   authorizer.NoOpinion,
			reason: `unknown node for user "system:node:"`,
		},
		{want: authorizer.NoOpinion},
	} {
		decision, reason, _ := authz.Authorize(context.Background(), &authorizer.Attributes{
			User:         test.user,
			Resource:     true,
			Verb:         "list",
			ResourceName: "services",
		})
		if decision != test.want || reason != test.reason {
			t.Errorf("%v: got %v, reason %q, want %v, %q", test.user, decision, reason, test.want, test.reason)
		}
		if test.user == nil {
			continue
		}
		_, isNode := node.NodeOf(test.user)
		if rules, err := authz.RulesFor(context.Background(), test.user, "a"); rules.Incomplete != isNode || (err != nil) != isNode {
			t.Errorf("rules of %v: got %v, error %v, want incomplete rules and an error: %t", test.user, rules, err, isNode)
		}
	}
}
