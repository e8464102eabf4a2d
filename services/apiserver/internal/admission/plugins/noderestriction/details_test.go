package noderestriction_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/noderestriction"
	"binnacle/services/apiserver/internal/request"
)

// tryAll sends each write as a node.
func tryAll(t *testing.T, plugin *noderestriction.Plugin, node string, writes []write) {
	t.Helper()
	for _, w := range writes {
		err := plugin.Admit(t.Context(), w.attributes(&request.User{Name: "system:node:" + node, Groups: []string{"system:nodes"}}))
		if (err == nil) != (w.want == "") || err != nil && !strings.Contains(err.Error(), w.want) {
			t.Errorf("%s %s %s: got %v\nwant %s", w.op, w.resource, w.name, err, w.want)
		}
	}
}

func labeled(key, value string) *corev1.Node {
	n := aNode()
	n.Labels[key] = value
	return n
}

// TestEachRule checks that each rule rejects on its own.
func TestEachRule(t *testing.T) {
	const requests = "certificatesigningrequests.certificates.k8s.io"
	configured := aNode()
	configured.Spec.ConfigSource = &corev1.NodeConfigSource{}
	theirs := certificate(t, certificatesv1.KubeletServingSignerName, "system:node:n2")
	same := claim(func(*corev1.PersistentVolumeClaim) {})
	owner := func(change func(*metav1.OwnerReference)) *corev1.Pod {
		return pod(func(p *corev1.Pod) { change(&p.OwnerReferences[0]) })
	}
	bound := boundTo("mine")
	later, nameless := *bound, *bound
	later.APIVersion, nameless.Name = "v2", ""
	tryAll(t, &noderestriction.Plugin{Objects: objects{}, Authorizer: audiences{}, Audiences: true}, "n1", []write{
		{op: remove, resource: "nodes", name: "n1"},
		{op: create, resource: "nodes", name: "n1", object: pod(), want: "unexpected type"},
		{op: update, resource: "nodes", name: "n1", object: aNode(), old: pod(), want: "unexpected type"},
		{op: update, resource: "nodes", name: "n1", object: configured, old: configured},
		{
			op:       create,
			resource: "nodes",
			name:     "n1",
			object:   labeled("kubernetes.io/role", ""),
			want:     "not allowed to set the following labels",
		},
		{
			op:       update,
			resource: "nodes",
			name:     "n1",
			object:   labeled("kubernetes.io/role", ""),
			old:      aNode(),
			want:     "not allowed to modify labels",
		},
		{
			op: update, resource: "nodes", name: "n1", object: labeled("kubernetes.io/role", "a"),
			old: labeled("kubernetes.io/role", "b"), want: "not allowed to modify labels",
		},
		{op: create, resource: "nodes", name: "n1", object: labeled("kubernetes.io", "a")},
		{op: create, resource: requests, object: aNode(), want: "unexpected type"},
		{op: update, resource: requests, object: theirs, old: theirs},

		{
			op: create, resource: "pods", name: "p",
			object: owner(func(o *metav1.OwnerReference) { o.APIVersion = "v2" }),
			want:   "with an owner reference set to itself",
		},
		{
			op: create, resource: "pods", name: "p",
			object: owner(func(o *metav1.OwnerReference) { o.Controller = ptr(false) }),
			want:   "with a controller owner reference",
		},
		{
			op:       create,
			resource: "pods",
			name:     "p",
			object:   owner(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr(false) }),
		},
		{op: create, resource: "pods/eviction", name: "mine", object: aNode(), want: "unexpected type"},
		{op: create, resource: "pods/status", name: "p", object: pod(), want: "unexpected operation"},
		{op: update, resource: "pods/status", name: "p", object: aNode(), old: pod(), want: "unexpected type"},
		{op: update, resource: "pods/status", name: "p", object: pod(), old: aNode(), want: "unexpected type"},
		{op: create, resource: "persistentvolumeclaims/status", name: "c", object: same, want: "unexpected operation"},
		{op: update, resource: "persistentvolumeclaims/status", name: "c", object: aNode(), old: same, want: "unexpected type"},
		{op: update, resource: "persistentvolumeclaims/status", name: "c", object: same, old: aNode(), want: "unexpected type"},

		{op: update, resource: "serviceaccounts/token", name: "sa", object: tokenFor(nil)},
		{op: create, resource: "serviceaccounts", name: "sa", object: &corev1.ServiceAccount{}},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: aNode(), want: "unexpected type"},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(&later, "vault"), want: "not bound to a pod"},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(&nameless, "vault"), want: "not bound to a pod"},
	})
	tryAll(t, &noderestriction.Plugin{Objects: objects{}, Authorizer: audiences{}}, "n3", []write{
		{op: create, resource: "pods", name: "p", object: pod(func(p *corev1.Pod) {
			p.Spec.NodeName, p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = "n3", "n3", ""
		}), want: `nodes "n3" not found`},
	})
}

// volumes adds the volumes of a test to the pod, and chains of claims, volumes and drivers that
// break where the name of the claim says.
type volumes struct {
	objects
	of []corev1.Volume
}

func (v volumes) Pod(ctx context.Context, ns, name string) (*corev1.Pod, error) {
	p, err := v.objects.Pod(ctx, ns, name)
	if err == nil {
		p.Spec.Volumes = v.of
	}
	return p, err
}

func (v volumes) Claim(ctx context.Context, ns, name string) (*corev1.PersistentVolumeClaim, error) {
	if name == "broken" {
		return nil, errBroken
	}
	return v.objects.Claim(ctx, ns, name)
}

func (v volumes) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	switch name {
	case "of-lost":
		return nil, errBroken
	case "of-plain":
		return &corev1.PersistentVolume{}, nil
	case "of-older":
		v := &corev1.PersistentVolume{}
		v.Spec.Cinder = &corev1.CinderPersistentVolumeSource{}
		return v, nil
	}
	return v.objects.Volume(ctx, name)
}

func (v volumes) Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	switch name {
	case "driver-of-driverless":
		return nil, errBroken
	case "disk.csi.azure.com":
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: "storage.k8s.io", Resource: "csidrivers"}, name)
	}
	return v.objects.Driver(ctx, name)
}

// faulty is an authorizer that fails.
type faulty struct{}

func (faulty) Authorize(context.Context, *authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.NoOpinion, "", errors.New("no answer")
}

// TestAudiencesOfVolumes checks that a node may request the audiences of all volumes that a pod
// mounts. A volume that cannot be resolved grants nothing, and does not affect others.
func TestAudiencesOfVolumes(t *testing.T) {
	claimed := func(name string) corev1.Volume {
		return corev1.Volume{
			Name:         name,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}},
		}
	}
	ephemeral := func(template *corev1.PersistentVolumeClaimTemplate) corev1.Volume {
		return corev1.Volume{
			Name:         "v",
			VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}},
		}
	}
	projected := corev1.Volume{
		Name: "p",
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{}}, {ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault"}},
		}}},
	}
	const unknown = "is not authorized to request tokens for this audience"
	for name, c := range map[string]struct {
		of         []corev1.Volume
		audience   string
		want       string
		authorizer authorizer.Authorizer
	}{
		"projected":          {of: []corev1.Volume{projected}, audience: "vault"},
		"projected, another": {of: []corev1.Volume{projected}, audience: "other", want: unknown},
		"of an ephemeral claim": {
			of:       []corev1.Volume{ephemeral(&corev1.PersistentVolumeClaimTemplate{})},
			audience: "audience-of-driver-of-mine-v",
		},
		"of an ephemeral of nothing":   {of: []corev1.Volume{ephemeral(nil)}, audience: "audience-of-driver-of-mine-v", want: unknown},
		"of a claim":                   {of: []corev1.Volume{claimed("c")}, audience: "audience-of-driver-of-c"},
		"of a volume without a driver": {of: []corev1.Volume{claimed("plain")}, audience: "a", want: unknown},
		"of a broken claim": {
			of: []corev1.Volume{claimed("broken")}, audience: "a",
			want: `error validating audience "a": the cache is not loaded`,
		},
		"of a missing volume": {
			of: []corev1.Volume{claimed("lost")}, audience: "a",
			want: `error validating audience "a": the cache is not loaded`,
		},
		"of a missing driver": {
			of: []corev1.Volume{claimed("driverless")}, audience: "a",
			want: `error validating audience "a": the cache is not loaded`,
		},
		"of an in-tree volume": {
			of:       []corev1.Volume{{VolumeSource: corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}}},
			audience: "audience-of-ebs.csi.aws.com",
		},
		"of a claim to an in-tree volume": {of: []corev1.Volume{claimed("older")}, audience: "audience-of-cinder.csi.openstack.org"},
		"of an in-tree volume without driver": {
			of:       []corev1.Volume{{VolumeSource: corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}}}},
			audience: "a", want: unknown,
		},
		"after a broken claim": {of: []corev1.Volume{claimed("broken"), projected}, audience: "vault"},
		"authorizer fails": {
			audience: "a", authorizer: faulty{},
			want: "error authorizing system:node:n1 to request tokens for this audience: no answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			z := c.authorizer
			if z == nil {
				z = audiences{}
			}
			tryAll(t, &noderestriction.Plugin{Objects: volumes{of: c.of}, Authorizer: z, Audiences: true}, "n1", []write{
				{
					op:       admission.Create,
					resource: "serviceaccounts/token",
					name:     "sa",
					object:   tokenFor(boundTo("mine"), c.audience),
					want:     c.want,
				},
			})
		})
	}
}
