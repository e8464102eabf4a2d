package noderestriction_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/noderestriction"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

var errBroken = errors.New("the cache is not loaded")

// objects has pods of the nodes n1 and n2, and a chain of volumes.
type objects struct{}

func (objects) Pod(_ context.Context, ns, name string) (*corev1.Pod, error) {
	switch name {
	case "mine", "theirs":
		p := pod(func(p *corev1.Pod) { p.Name, p.Namespace, p.UID = name, ns, "uid-of-pod" })
		if name == "theirs" {
			p.Spec.NodeName = "n2"
		}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "p", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault"}}}}}},
			{Name: "c", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
			{Name: "d", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "inline"}}},
		}
		return p, nil
	case "broken":
		return nil, errBroken
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (objects) Node(_ context.Context, name string) (*corev1.Node, error) {
	if name != "n1" {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-n1"}}, nil
}

func (objects) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "of-" + name}}, nil
}

func (objects) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	v := &corev1.PersistentVolume{}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver-" + name}
	return v, nil
}

func (objects) Driver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "audience-of-" + name}}}}, nil
}

// audiences permits some audiences to all nodes.
type audiences struct{}

func (audiences) Authorize(_ context.Context, a *authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.Verb == "request-serviceaccounts-token-audience" && a.ResourceName == "granted" && a.Name == "sa" && a.Namespace == "ns" {
		return authorizer.Allow, "", nil
	}
	return authorizer.NoOpinion, "", nil
}

func ptr[T any](v T) *T { return &v }

// pod returns a valid mirror pod with changes.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "h"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "uid-of-n1", Controller: ptr(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c"}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func volume(s corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}} }
}

func aNode(labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{}}}
	for _, l := range labels {
		n.Labels[l] = "x"
	}
	return n
}

func slice(node string) *resourcev1beta1.ResourceSlice {
	return &resourcev1beta1.ResourceSlice{Spec: resourcev1beta1.ResourceSliceSpec{NodeName: node}}
}

func newerSlice(node string) *resourcev1beta2.ResourceSlice {
	return &resourcev1beta2.ResourceSlice{Spec: resourcev1beta2.ResourceSliceSpec{NodeName: &node}}
}

func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"}}
	change(c)
	return c
}

func tokenFor(ref *authenticationv1.BoundObjectReference, audiences ...string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: ref, Audiences: audiences}}
}

func boundTo(name string) *authenticationv1.BoundObjectReference {
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: "uid-of-pod"}
}

func certificate(t *testing.T, signer, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}}
}

// write is a request of node n1.
type write struct {
	op           admission.Operation
	resource     string // resource[/subresource][.group]
	name         string
	object, old  runtime.Object
	want         string // part of the error; empty when admitted
	notForbidden bool   // the error is not 403
}

// attributes returns the request of a user.
func (w *write) attributes(user *request.User) *admission.Request {
	path, group, _ := strings.Cut(w.resource, ".")
	resource, sub, _ := strings.Cut(path, "/")
	return &admission.Request{
		Operation:   w.op,
		Resource:    &registry.Kind{Names: registry.Names{Group: group, Resource: resource}},
		Subresource: sub,
		Namespace:   "ns",
		Name:        w.name,
		Object:      w.object,
		OldObject:   w.old,
		User:        user,
	}
}

// Operations of writes.
const (
	create = admission.Create
	update = admission.Update
	remove = admission.Delete
)

// checkWrites checks the result of each write of node n1.
func checkWrites(t *testing.T, writes []write) {
	t.Helper()
	plugin := &noderestriction.Plugin{Objects: objects{}, Authorizer: audiences{}, Audiences: true}
	for _, w := range writes {
		err := plugin.Admit(t.Context(), w.attributes(&request.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}))
		if (err == nil) != (w.want == "") || err != nil && (!strings.Contains(err.Error(), w.want) || apierrors.IsForbidden(err) == w.notForbidden) {
			t.Errorf("%s %s %q: got %v\nwant %q", w.op, w.resource, w.name, err, w.want)
		}
		// Other users are not restricted. A node without a name is rejected.
		for _, u := range []*request.User{{Name: "system:node:n1"}, {Name: "n1", Groups: []string{"system:nodes"}}, nil} {
			if err := plugin.Admit(t.Context(), w.attributes(u)); err != nil {
				t.Errorf("%s %s by %v: %v, want no error", w.op, w.resource, u, err)
			}
		}
		if err := plugin.Admit(t.Context(), w.attributes(&request.User{Name: "system:node:", Groups: []string{"system:nodes"}})); !apierrors.IsForbidden(err) {
			t.Errorf("%s %s by a node without a name: got %v, want an error of type Forbidden", w.op, w.resource, err)
		}
	}
}

// TestWritesOfNodes checks what a node may write to nodes.
func TestWritesOfNodes(t *testing.T) {
	taint := aNode()
	taint.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
	configured := aNode()
	configured.Spec.ConfigSource = &corev1.NodeConfigSource{}
	csiNode := metav1.OwnerReference{APIVersion: "storage.k8s.io/v1", Kind: "CSINode", Name: "n1", UID: "u"}
	owned := func(by metav1.OwnerReference) *corev1.Node {
		n := aNode()
		n.OwnerReferences = []metav1.OwnerReference{by}
		return n
	}
	checkWrites(t, []write{
		{create, "nodes", "n1", aNode("zone", "kubernetes.io/hostname", "node.kubernetes.io/x", "a.kubelet.kubernetes.io/y", "example.com/z", "topology.kubernetes.io/zone"), nil, "", false},
		{create, "nodes", "n2", aNode(), nil, `node "n1" is not allowed to modify node "n2"`, false},
		{create, "nodes", "n1", configured, nil, "not allowed to create pods with a non-nil configSource", false},
		{create, "nodes", "n1", aNode("node-restriction.kubernetes.io/a", "x.k8s.io/b", "c"), nil, "not allowed to set the following labels: node-restriction.kubernetes.io/a, x.k8s.io/b", false},
		{update, "nodes", "n1", aNode("kubernetes.io/os"), aNode("kubernetes.io/arch"), "", false},
		{update, "nodes", "n1", aNode(), aNode("kubernetes.io/role", "q.node-restriction.kubernetes.io/b"), "is not allowed to modify labels: kubernetes.io/role, q.node-restriction.kubernetes.io/b", false},
		{update, "nodes", "n1", aNode("kubernetes.io/role"), aNode("kubernetes.io/role"), "", false},
		{update, "nodes", "n1", taint, aNode(), `node "n1" is not allowed to modify taints`, false},
		{update, "nodes", "n1", aNode(), taint, `node "n1" is not allowed to modify taints`, false},
		{create, "nodes", "n1", owned(csiNode), nil, `node "n1" is not allowed to set ownerReferences`, false},
		{update, "nodes", "n1", owned(csiNode), aNode(), `node "n1" is not allowed to modify ownerReferences`, false},
		{update, "nodes", "n1", aNode(), owned(csiNode), `node "n1" is not allowed to modify ownerReferences`, false},
		{update, "nodes/status", "n1", owned(csiNode), aNode(), `node "n1" is not allowed to modify ownerReferences`, false},
		{update, "nodes", "n1", owned(csiNode), owned(csiNode), "", false},
		{update, "nodes", "n1", configured, aNode(), "not allowed to update configSource", false},
		{update, "nodes", "n1", aNode(), configured, "", false},
		{update, "nodes/status", "n2", aNode(), aNode(), "not allowed to modify node", false},
	})
}

// TestWritesOfPods checks what a node may write to pods: mirror pods, evictions and statuses.
func TestWritesOfPods(t *testing.T) {
	owner := func(change func(*metav1.OwnerReference)) *corev1.Pod {
		return pod(func(p *corev1.Pod) { change(&p.OwnerReferences[0]) })
	}
	const other = "can only create pods with an owner reference set to itself"
	checkWrites(t, []write{
		{create, "pods", "p", pod(), nil, "", false},
		{create, "pods", "p", pod(func(p *corev1.Pod) { p.Annotations = nil }), nil, `pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`, false},
		{create, "pods", "p", pod(func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), nil, "with spec.nodeName set to itself", false},
		{create, "pods", "p", pod(func(p *corev1.Pod) { p.OwnerReferences = nil }), nil, other, false},
		{create, "pods", "p", pod(func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, p.OwnerReferences[0]) }), nil, "with a single owner reference", false},
		{create, "pods", "p", owner(func(o *metav1.OwnerReference) { o.Name = "n2" }), nil, other, false},
		{create, "pods", "p", owner(func(o *metav1.OwnerReference) { o.Kind = "Pod" }), nil, other, false},
		{create, "pods", "p", owner(func(o *metav1.OwnerReference) { o.Controller = nil }), nil, "with a controller owner reference", false},
		{create, "pods", "p", owner(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr(true) }), nil, "must not set blockOwnerDeletion", false},
		{create, "pods", "p", owner(func(o *metav1.OwnerReference) { o.UID = "old" }), nil, "node n1 UID mismatch: expected old got uid-of-n1", false},
		{create, "pods", "p", pod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "sa" }), nil, `node "n1" can not create pods that reference a service account`, false},
		{create, "pods", "p", pod(volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}}}})), nil, "reference clustertrustbundles", false},
		{create, "pods", "p", pod(volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})), nil, "reference secrets", false},
		{create, "pods", "p", pod(volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}})), nil, "reference configmaps", false},
		{create, "pods", "p", pod(volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}})), nil, "reference persistentvolumeclaims", false},
		{create, "pods", "p", pod(func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r"}} }), nil, "reference resourceclaims", false},
		{create, "pods", "p", aNode(), nil, "unexpected type *v1.Node", false},
		{update, "pods", "p", pod(), pod(), `unexpected operation "UPDATE", node "n1" can only create and delete mirror pods`, false},
		{remove, "pods", "mine", nil, nil, "", false},
		{remove, "pods", "theirs", nil, nil, `node "n1" can only delete pods with spec.nodeName set to itself`, false},
		{remove, "pods", "none", nil, nil, `pods "none" not found`, true},
		{remove, "pods", "broken", nil, nil, "the cache is not loaded", false},
		{create, "pods/binding", "mine", nil, nil, `unexpected pod subresource "binding"`, false},
		{create, "pods/eviction", "mine", &policyv1.Eviction{}, nil, "", false},
		{create, "pods/eviction", "", &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, nil, "node n1 can only evict pods", false},
		{create, "pods/eviction", "", &policyv1.Eviction{}, nil, "could not determine pod", false},
		{update, "pods/eviction", "mine", &policyv1.Eviction{}, nil, "unexpected operation", false},
		{update, "pods/status", "p", pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), pod(), "", false},
		{update, "pods/status", "p", pod(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), pod(), `node "n1" cannot update labels through pod status`, false},
		{update, "pods/status", "p", pod(), pod(func(p *corev1.Pod) { p.Spec.NodeName = "n2" }), "can only update pod status for pods with spec.nodeName set to itself", false},
		{update, "pods/status", "p", pod(func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: ptr("c")}}
		}), pod(), "cannot update resource claim", false},
	})
}

// TestWritesOfClaims checks what a node may write to persistent volume claims.
func TestWritesOfClaims(t *testing.T) {
	checkWrites(t, []write{
		{update, "persistentvolumeclaims/status", "c", claim(func(c *corev1.PersistentVolumeClaim) {
			c.ResourceVersion, c.Status.Capacity = "", corev1.ResourceList{}
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "x"}}
		}), claim(func(*corev1.PersistentVolumeClaim) {}), "", false},
		{update, "persistentvolumeclaims/status", "c", claim(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }), claim(func(*corev1.PersistentVolumeClaim) {}), "not allowed to update fields other than", false},
		{update, "persistentvolumeclaims/status", "c", claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = "Lost" }), claim(func(*corev1.PersistentVolumeClaim) {}), "not allowed to update fields other than", false},
		{update, "persistentvolumeclaims", "c", claim(func(*corev1.PersistentVolumeClaim) {}), claim(func(*corev1.PersistentVolumeClaim) {}), "may only update PVC status", false},
	})
}

// TestWritesOfTokens checks which tokens a node may request.
func TestWritesOfTokens(t *testing.T) {
	checkWrites(t, []write{
		{create, "serviceaccounts/token", "sa", tokenFor(boundTo("mine"), "vault"), nil, "", false},
		{create, "serviceaccounts/token", "sa", tokenFor(boundTo("mine"), "audience-of-inline"), nil, "", false},
		{create, "serviceaccounts/token", "sa", tokenFor(boundTo("mine"), "audience-of-driver-of-claim"), nil, "", false},
		{create, "serviceaccounts/token", "sa", tokenFor(boundTo("mine"), "granted"), nil, "", false},
		{create, "serviceaccounts/token", "other", tokenFor(boundTo("mine"), "granted"), nil, `audience "granted" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience`, false},
		{create, "serviceaccounts/token", "sa", tokenFor(boundTo("mine")), nil, `audience "" not found in pod spec volume`, false},
		{create, "serviceaccounts/token", "sa", tokenFor(boundTo("mine"), "vault", "granted"), nil, "0 or 1 audiences", false},
		{create, "serviceaccounts/token", "sa", tokenFor(nil), nil, "token not bound to a pod", false},
		{create, "serviceaccounts/token", "sa", tokenFor(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "s", UID: "u"}), nil, "token not bound to a pod", false},
		{create, "serviceaccounts/token", "sa", tokenFor(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mine"}), nil, "without a uid", false},
		{create, "serviceaccounts/token", "sa", tokenFor(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mine", UID: "old"}), nil, "the UID in the bound object reference (old) does not match", false},
		{create, "serviceaccounts/token", "sa", tokenFor(boundTo("theirs"), "vault"), nil, "scheduled on a different node", false},
		{create, "serviceaccounts/token", "sa", tokenFor(boundTo("none")), nil, `pods "none" not found`, true},
	})
}

// TestOtherWrites checks what a node may write to other resources.
func TestOtherWrites(t *testing.T) {
	const onlyCreate, onlyDelete = "can only create ResourceSlice with the same NodeName as the requesting node", "can only delete ResourceSlice with the same NodeName as the requesting node"
	const kubelet, serving = certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
	checkWrites(t, []write{
		{create, "leases.coordination.k8s.io", "n1", &coordinationv1.Lease{}, nil, `can only access leases in the "kube-node-lease" system namespace`, false},
		{create, "csinodes.storage.k8s.io", "n1", &storagev1.CSINode{}, nil, "", false},
		{remove, "csinodes.storage.k8s.io", "n2", nil, nil, "can only access CSINode with the same name", false},
		{create, "certificatesigningrequests.certificates.k8s.io", "r", certificate(t, kubelet, "system:node:n1"), nil, "", false},
		{create, "certificatesigningrequests.certificates.k8s.io", "r", certificate(t, serving, "system:node:n2"), nil, "can only create a node CSR with CN=system:node:n1", false},
		{create, "certificatesigningrequests.certificates.k8s.io", "r", certificate(t, "example.com/any", "any"), nil, "", false},
		{create, "certificatesigningrequests.certificates.k8s.io", "r", &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: kubelet}}, nil, "unable to parse csr", false},
		{create, "resourceslices.resource.k8s.io", "s", slice("n1"), nil, "", false},
		{create, "resourceslices.resource.k8s.io", "s", slice("n2"), nil, onlyCreate, false},
		{create, "resourceslices.resource.k8s.io", "s", slice(""), nil, onlyCreate, false},
		{create, "resourceslices.resource.k8s.io", "s", newerSlice("n1"), nil, "", false},
		{create, "resourceslices.resource.k8s.io", "s", newerSlice("n2"), nil, onlyCreate, false},
		{create, "resourceslices.resource.k8s.io", "s", &resourcev1beta2.ResourceSlice{}, nil, onlyCreate, false},
		{create, "resourceslices.resource.k8s.io", "s", aNode(), nil, "unexpected type *v1.Node", false},
		{remove, "resourceslices.resource.k8s.io", "s", nil, slice("n1"), "", false},
		{remove, "resourceslices.resource.k8s.io", "s", nil, slice("n2"), onlyDelete, false},
		{remove, "resourceslices.resource.k8s.io", "s", nil, newerSlice("n2"), onlyDelete, false},
		{remove, "resourceslices.resource.k8s.io", "s", nil, nil, "unexpected type <nil>", false},
		{update, "resourceslices.resource.k8s.io", "s", slice("n1"), slice("n1"), "", false},
		{create, "events", "e", &corev1.Event{}, nil, "", false},
	})
}

func TestLeasesOfNodes(t *testing.T) {
	plugin := &noderestriction.Plugin{}
	for name, allowed := range map[string]bool{"n1": true, "n2": false} {
		w := write{op: admission.Update, resource: "leases.coordination.k8s.io", name: name}
		a := w.attributes(&request.User{Name: "system:node:n1", Groups: []string{"system:nodes"}})
		a.Namespace = "kube-node-lease"
		if err := plugin.Admit(t.Context(), a); (err == nil) != allowed {
			t.Errorf("%s: got %v, want success: %v", name, err, allowed)
		}
	}
}

func TestGatesOpen(t *testing.T) {
	plugin := &noderestriction.Plugin{Objects: objects{}, Authorizer: audiences{}, AnyCertificate: true}
	for _, w := range []write{
		{op: admission.Create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(boundTo("mine"), "any", "more")},
		{op: admission.Create, resource: "certificatesigningrequests.certificates.k8s.io", object: certificate(t, certificatesv1.KubeletServingSignerName, "system:node:n2")},
	} {
		if err := plugin.Admit(t.Context(), w.attributes(&request.User{Name: "system:node:n1", Groups: []string{"system:nodes"}})); err != nil {
			t.Errorf("%s: got %v, want no error", w.resource, err)
		}
	}
}
