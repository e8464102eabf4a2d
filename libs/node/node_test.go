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
func addAllReferences(p *corev1.Pod) {
	ref := func(n string) corev1.LocalObjectReference { return *localRef(n) }
	claim := "named"
	created, other := "made", "others"
	p.Spec.ServiceAccountName = "sa"
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{ref("pull"), ref("")}
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
	p.Spec.Containers = []corev1.Container{env("")}
	p.Spec.InitContainers = []corev1.Container{env("-init")}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(env("-debug"))}}
	for _, v := range []corev1.VolumeSource{
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
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: v})
	}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name:         "scratch",
		VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}},
	})
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "x", ResourceClaimName: &claim}, {Name: "y"}, {Name: "z"}}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{
		{Name: "other", ResourceClaimName: &other},
		{Name: "y", ResourceClaimName: &created},
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

// TestGraphBelongs checks which objects belong to a node, and that removed objects leave no
// entries.
func TestGraphBelongs(t *testing.T) {
	g := node.NewGraph()
	g.Set(pod("p", "n1", addAllReferences))
	g.Set(pod("mirror", "n2", func(p *corev1.Pod) {
		addAllReferences(p)
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	}))
	g.Set(pod("pending", "", addAllReferences))
	g.Set(volume("pv", "claim", csi()))
	g.Set(volume("free", "", csi()))
	g.Set(volume("azure", "claim",
		corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "pvazure"}}))
	g.Set(&storagev1.VolumeAttachment{ObjectMeta: meta("", "va"), Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}})
	n1 := "n1"
	g.Set(&resourcev1beta1.ResourceSlice{ObjectMeta: meta("", "slice"), Spec: resourcev1beta1.ResourceSliceSpec{NodeName: n1}})
	g.Set(&resourcev1beta2.ResourceSlice{ObjectMeta: meta("", "newer"), Spec: resourcev1beta2.ResourceSliceSpec{NodeName: &n1}})
	g.Set(&resourcev1beta2.ResourceSlice{ObjectMeta: meta("", "shared")})
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
				if got := g.HasReference(onNode, kind, ns, name); got != belongs {
					t.Errorf("HasReference(%q, kind %d, %s) = %t, want %t", onNode, kind, n, got, belongs)
				}
			}
		}
	}
	requireAll("n1", belong)
	requireAll("n2", doNotBelong)
	requireAll("", doNotBelong)
	for _, c := range []struct {
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
		if got := g.HasReference(c.node, c.kind, c.namespace, c.object); got != c.want {
			t.Errorf("%s: HasReference(%q, kind %d, %q, %q) = %t, want %t", c.name, c.node, c.kind, c.namespace, c.object, got, c.want)
		}
	}
	for kind, name := range map[node.Kind]string{node.Pod: "pending", node.Secret: "", node.ResourceClaim: "others"} {
		if g.HasReference("", kind, "a", name) || g.HasReference("n1", kind, "a", name) {
			t.Errorf("HasReference(kind %d, %q) = true, want false for an object that no node needs", kind, name)
		}
	}
	if g.HasReference("", node.Pod, "a", "absent") || g.HasReference("", node.VolumeAttachment, "", "absent") {
		t.Error("HasReference() = true for a missing object and a node without a name, want false")
	}
	// Retain for one kind does not affect other kinds.
	g.Retain(node.ResourceSlice, func(_, name string) bool { return name == "slice" || name == "newer" })
	g.Set(pod("pv", "n1", nil))
	g.Retain(node.PersistentVolume, func(namespace, name string) bool { return namespace == "" && name != "free" })
	requireAll("n1", belong)
	g.Delete(node.Pod, "a", "pv")
	// A secret that two volumes need remains while one of them exists.
	g.Set(volume("second", "claim", csi()))
	g.Delete(node.PersistentVolume, "", "second")
	requireAll("n1", belong)
	// Entries are removed with the last object that references them.
	g.Set(pod("p", "n1", addAllReferences)) // an update without changes
	g.Delete(node.Pod, "a", "p")
	g.Delete(node.VolumeAttachment, "", "va")
	g.Retain(node.ResourceSlice, func(string, string) bool { return false })
	requireAll("n1", doNotBelong)
	g.Delete(node.Pod, "a", "mirror")
	for _, v := range []string{"pv", "free", "azure"} {
		g.Delete(node.PersistentVolume, "", v)
	}
	if n := node.Size(g); n != 0 {
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
		g := node.NewGraph()
		pods, volumes := map[string]*corev1.Pod{}, map[string]*corev1.PersistentVolume{}
		for range rapid.IntRange(1, 25).Draw(t, "changes") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			switch rapid.IntRange(0, 5).Draw(t, "change") {
			case 0:
				g.Delete(node.Pod, "a", name)
				delete(pods, name)
			case 1:
				g.Delete(node.PersistentVolume, "", name)
				delete(volumes, name)
			case 2:
				volumes[name] = volume(name, rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "claim"), csi())
				g.Set(volumes[name])
			default:
				pods[name] = pod(name, rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node"), func(p *corev1.Pod) {
					for _, s := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 3).Draw(t, "refs") {
						p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, *localRef(s))
						p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
							PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s},
						}})
					}
				})
				g.Set(pods[name])
			}
		}
		fresh := node.NewGraph()
		for _, p := range pods {
			fresh.Set(p)
		}
		for _, v := range volumes {
			fresh.Set(v)
		}
		for _, n := range []string{"", "n1", "n2"} {
			for kind := node.Pod; kind <= node.ResourceSlice; kind++ {
				for _, ns := range []string{"", "a", "csi"} {
					for _, name := range append(names, "publish", "stage") {
						if got, want := g.HasReference(n, kind, ns, name), fresh.HasReference(n, kind, ns, name); got != want {
							t.Fatalf("kind %d %s/%s on %q: %v, want %v", kind, ns, name, n, got, want)
						}
					}
				}
			}
		}
	})
}

// TestAuthorizerDecisionsAndReasons checks what the authorizer of nodes allows, and its reasons.
func TestAuthorizerDecisionsAndReasons(t *testing.T) {
	g := node.NewGraph()
	g.Set(pod("p", "n1", addAllReferences))
	z := node.NewAuthorizer(g, features.New().Enabled)
	g.Set(&resourcev1beta1.ResourceSlice{ObjectMeta: meta("", "own"), Spec: resourcev1beta1.ResourceSliceSpec{NodeName: "n1"}})
	g.Set(&resourcev1beta1.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1beta1.ResourceSliceSpec{NodeName: "n2"}})
	const allow, norel = "allow", "no relationship found between node 'n1' and this object"
	const slices = "can only list/watch/deletecollection resourceslices with nodeName field selector"
	for _, c := range []struct{ ask, selector, want string }{
		{ask: "get secrets a/pull", want: allow},
		{ask: "list secrets a/pull", want: allow},
		{ask: "watch configmaps a/mapenv", want: allow},
		{ask: "get secrets a/other", want: norel},
		{ask: "get secrets b/pull", want: norel},
		{ask: "list secrets a", want: "No Object name found"},
		{ask: "list secrets", want: "can only read namespaced object of this type"},
		{ask: "delete secrets a/pull", want: "can only read resources of this type"},
		{ask: "get secrets/x a/pull", want: "cannot read subresource"},
		{ask: "get persistentvolumeclaims a/claim", want: allow},
		{ask: "list persistentvolumeclaims a/claim", want: "can only get individual resources of this type"},
		{ask: "get persistentvolumeclaims/x a/claim", want: "cannot get subresource"},
		{ask: "patch persistentvolumeclaims/status a/claim", want: allow},
		{ask: "get persistentvolumeclaims/status a/claim", want: "can only get/update/patch this type"},
		{ask: "update persistentvolumeclaims/status a/other", want: norel},
		{ask: "get persistentvolumes -/pv", want: norel},
		{ask: "get resource.k8s.io:resourceclaims a/named", want: allow},
		{ask: "get storage.k8s.io:volumeattachments -/va", want: norel},
		{ask: "create serviceaccounts/token a/sa", want: allow},
		{ask: "create serviceaccounts/token a/x", want: norel},
		{ask: "create serviceaccounts/token a", want: "can only create tokens for individual service accounts"},
		{ask: "get serviceaccounts a/sa", want: "not allowed to get service accounts"},
		{ask: "list serviceaccounts a", want: "can only create tokens for individual service accounts"},
		{ask: "get certificates.k8s.io:clustertrustbundles -/b", want: ""},
		{ask: "create serviceaccounts a/sa", want: "can only create token subresource of serviceaccount"},
		{ask: "update coordination.k8s.io:leases kube-node-lease/n1", want: allow},
		{ask: "create coordination.k8s.io:leases kube-node-lease", want: allow},
		{ask: "get coordination.k8s.io:leases kube-node-lease/n2",
			want: "can only access node lease with the same name as the requesting node"},
		{ask: "get coordination.k8s.io:leases a/n1", want: `can only access leases in the "kube-node-lease" system namespace`},
		{
			ask:  "list coordination.k8s.io:leases kube-node-lease",
			want: "can only get, create, update, patch, or delete a node lease",
		},
		{ask: "create storage.k8s.io:csinodes", want: allow},
		{ask: "get storage.k8s.io:csinodes -/n2", want: "can only access CSINode with the same name as the requesting node"},
		{ask: "get storage.k8s.io:csinodes -/n1", want: allow},
		{ask: "delete storage.k8s.io:csinodes -/n1", want: allow},
		{ask: "list storage.k8s.io:csinodes", want: "can only get, create, update, patch, or delete a CSINode"},
		{ask: "get storage.k8s.io:csinodes/x -/n1", want: "cannot authorize CSINode subresources"},
		{ask: "get nodes -/n1", want: allow},
		{ask: "watch nodes -/n1", want: allow},
		{ask: "create nodes", want: allow},
		{ask: "patch nodes/status -/n1", want: allow},
		{ask: "get nodes -/n2", want: "node 'n1' cannot read 'n2', only its own Node object"},
		{ask: "list nodes", want: "node 'n1' cannot read all nodes, only its own Node object"},
		{ask: "delete nodes -/n1", want: ""},
		{ask: "get nodes/status -/n1", want: ""},
		{ask: "get nodes/proxy -/n1", want: ""},
		{ask: "get pods a/p", want: allow},
		{ask: "get pods a/q", want: norel},
		{ask: "list pods", selector: "spec.nodeName=n1", want: allow},
		{ask: "watch pods a", selector: "spec.nodeName==n1", want: allow},
		{ask: "list pods", selector: "spec.nodeName=n2", want: "can only list/watch pods with spec.nodeName field selector"},
		{ask: "list pods", selector: "spec.nodeName!=n1", want: "can only list/watch pods with spec.nodeName field selector"},
		{ask: "watch pods a/p", want: allow},
		{ask: "create pods a", want: allow},
		{ask: "delete pods a/p", want: allow},
		{ask: "update pods a/p", want: ""},
		{ask: "patch pods/status a/p", want: allow},
		{ask: "get pods/status a/p", want: ""},
		{ask: "create pods/eviction a/p", want: allow},
		{ask: "get pods/eviction a/p", want: ""},
		{ask: "create pods/binding a/p", want: ""},
		{ask: "list resource.k8s.io:resourceslices", selector: "spec.nodeName=n1", want: allow},
		{ask: "deletecollection resource.k8s.io:resourceslices", selector: "spec.driver=d,spec.nodeName=n1", want: allow},
		{ask: "watch resource.k8s.io:resourceslices", selector: "spec.nodeName=n2", want: slices},
		{ask: "list resource.k8s.io:resourceslices", selector: "nodeName=n1", want: slices},
		{ask: "list resource.k8s.io:resourceslices", want: slices},
		{ask: "get resource.k8s.io:resourceslices -/own", want: allow},
		{ask: "delete resource.k8s.io:resourceslices -/own", want: allow},
		{ask: "create resource.k8s.io:resourceslices", want: allow},
		{ask: "get resource.k8s.io:resourceslices -/s", want: norel},
		{ask: "proxy resource.k8s.io:resourceslices -/s",
			want: "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"},
		{ask: "get resource.k8s.io:resourceslices/x -/s", want: "cannot authorize ResourceSlice subresources"},
		{ask: "list services", want: allow},
		{ask: "create events a", want: allow},
		{ask: "list apps:deployments a", want: ""},
		{ask: "get /metrics", want: ""},
	} {
		u := &authorizer.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}
		f := strings.Fields(c.ask)
		a := &authorizer.Attributes{User: u, Verb: f[0]}
		if strings.HasPrefix(f[1], "/") {
			a.Path = f[1]
		} else {
			a.Resource = true
			remaining := f[1]
			if g, r, ok := strings.Cut(remaining, ":"); ok {
				a.Group, remaining = g, r
			}
			a.ResourceName, a.Subresource, _ = strings.Cut(remaining, "/")
			if len(f) > 2 {
				a.Namespace, a.Name, _ = strings.Cut(f[2], "/")
				a.Namespace = strings.TrimPrefix(a.Namespace, "-")
			}
		}
		if c.selector != "" {
			a.FieldSelector = fields.ParseSelectorOrDie(c.selector).Requirements()
		}
		d, reason, err := z.Authorize(context.Background(), a)
		got := reason
		if d == authorizer.Allow {
			got = allow
		}
		if err != nil || got != c.want || d == authorizer.Deny {
			t.Errorf("%s %s: %q %v, want %q", c.ask, c.selector, got, err, c.want)
		}
	}
}

// TestNodeReadsWithoutSelectorGate checks how nodes read without the gate
// AuthorizeNodeWithSelectors.
func TestNodeReadsWithoutSelectorGate(t *testing.T) {
	z := node.NewAuthorizer(node.NewGraph(), func(features.Gate) bool { return false })
	u := &authorizer.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}
	for _, c := range []struct {
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
		resource, sub, _ := strings.Cut(c.resource, "/")
		d, _, err := z.Authorize(t.Context(), &authorizer.Attributes{
			User:         u,
			Verb:         c.verb,
			Resource:     true,
			Group:        c.group,
			ResourceName: resource,
			Subresource:  sub,
		})
		if err != nil || d != c.want {
			t.Errorf("%s %s: got %v, %v, want %v", c.verb, c.resource, d, err, c.want)
		}
	}
}

// TestNodeReadsWhatFeatureGatesAdd checks the resources that the gates
// ClusterTrustBundle and KubeletServiceAccountTokenForCredentialProviders add.
func TestNodeReadsWhatFeatureGatesAdd(t *testing.T) {
	g := node.NewGraph()
	g.Set(pod("p", "n1", addAllReferences))
	gates := features.New()
	if err := gates.Set("ClusterTrustBundle=true,KubeletServiceAccountTokenForCredentialProviders=true"); err != nil {
		t.Fatal(err)
	}
	z := node.NewAuthorizer(g, gates.Enabled)
	u := &authorizer.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}
	for _, c := range []struct {
		verb, group, resource, namespace, name string
		want                                   authorizer.Decision
	}{
		{verb: "list", group: "certificates.k8s.io", resource: "clustertrustbundles", want: authorizer.Allow},
		{verb: "update", group: "certificates.k8s.io", resource: "clustertrustbundles", name: "b", want: authorizer.NoOpinion},
		{verb: "get", resource: "serviceaccounts", namespace: "a", name: "sa", want: authorizer.Allow},
		{verb: "get", resource: "serviceaccounts", namespace: "a", name: "other", want: authorizer.NoOpinion},
		{verb: "list", resource: "serviceaccounts", namespace: "a", name: "sa", want: authorizer.NoOpinion},
	} {
		a := &authorizer.Attributes{
			User:         u,
			Verb:         c.verb,
			Resource:     true,
			Group:        c.group,
			ResourceName: c.resource,
			Namespace:    c.namespace,
			Name:         c.name,
		}
		if d, why, err := z.Authorize(t.Context(), a); err != nil || d != c.want {
			t.Errorf("%s %s %s: got %v, reason %q, error %v, want %v", c.verb, c.resource, c.name, d, why, err, c.want)
		}
	}
}

// TestAuthorizerIgnoresOtherUsers checks which combinations of user name and group count as a node.
func TestAuthorizerIgnoresOtherUsers(t *testing.T) {
	z := node.NewAuthorizer(node.NewGraph(), features.New().Enabled)
	nodes := []string{"system:nodes"}
	for _, c := range []struct {
		user *authorizer.User
		want authorizer.Decision
		why  string
	}{
		{user: &authorizer.User{Name: "system:node:n", Groups: nodes}, want: authorizer.Allow},
		{user: &authorizer.User{Name: "system:node:n"}, want: authorizer.NoOpinion},
		{user: &authorizer.User{Name: "kubelet", Groups: nodes}, want: authorizer.NoOpinion},
		{
			user: &authorizer.User{Name: "system:node:", Groups: nodes},
			want: authorizer.NoOpinion,
			why:  `unknown node for user "system:node:"`,
		},
		{want: authorizer.NoOpinion},
	} {
		d, why, _ := z.Authorize(context.Background(), &authorizer.Attributes{
			User:         c.user,
			Resource:     true,
			Verb:         "list",
			ResourceName: "services",
		})
		if d != c.want || why != c.why {
			t.Errorf("%v: got %v, reason %q, want %v, %q", c.user, d, why, c.want, c.why)
		}
		if c.user == nil {
			continue
		}
		_, isNode := node.NodeOf(c.user)
		if rules, err := z.RulesFor(context.Background(), c.user, "a"); rules.Incomplete != isNode || (err != nil) != isNode {
			t.Errorf("rules of %v: got %v, error %v, want incomplete rules and an error: %t", c.user, rules, err, isNode)
		}
	}
}
