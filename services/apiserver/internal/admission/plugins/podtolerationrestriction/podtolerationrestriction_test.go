package podtolerationrestriction_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/podtolerationrestriction"
	"binnacle/services/apiserver/internal/registry"
)

// namespace holds the annotations of every namespace: defaultTolerations and tolerationsWhitelist. The
// namespace absent does not exist, and the lookup of broken fails.
type namespace map[string]string

func (n namespace) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	switch name {
	case "absent":
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	case "broken":
		return nil, errors.New("no answer")
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	for k, v := range n {
		ns.Annotations["scheduler.alpha.kubernetes.io/"+k] = v
	}
	return ns, nil
}

// head is the beginning of every valid configuration.
const head = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\n"

// TestTolerationsAreMergedOrConflict checks that a created pod gets the default tolerations of its
// namespace, or else those of the cluster, and that tolerations outside the whitelist are rejected.
func TestTolerationsAreMergedOrConflict(t *testing.T) {
	const (
		config = head + "default: [{key: cluster-default, operator: Exists}]\n" +
			"whitelist: [{operator: Exists, key: ok}, {operator: Exists, key: cluster-default}, " +
			"{operator: Exists, key: node.kubernetes.io/memory-pressure}]"
		conflict = "pod tolerations (possibly merged with namespace default tolerations) conflict with its "
	)
	for name, test := range map[string]struct {
		config, namespace string
		annotations       namespace
		op                admission.Operation // default: create
		subresource       string
		keys, want        string // keys of the pod's tolerations, before and after
		requestsCPU       bool
		wantErr           string
	}{
		"cluster's default":                           {config: config, want: "cluster-default"},
		"in the cluster's whitelist":                  {config: config, keys: "ok", want: "ok cluster-default"},
		"not in the cluster's whitelist":              {config: config, keys: "bad", wantErr: conflict + "cluster whitelist"},
		"memory pressure for a pod that requests CPU": {config: config, requestsCPU: true, want: "cluster-default node.kubernetes.io/memory-pressure"},
		"no default on update":                        {config: config, op: admission.Update, keys: "ok", want: "ok"},
		"memory pressure on update":                   {config: config, op: admission.Update, requestsCPU: true, want: "node.kubernetes.io/memory-pressure"},
		"cluster's whitelist on update":               {config: config, op: admission.Update, keys: "bad", wantErr: conflict + "cluster whitelist"},
		"namespace's default":                         {config: config, annotations: namespace{"defaultTolerations": `[{"key":"ok","operator":"Exists"}]`}, want: "ok"},
		"namespace's empty default":                   {config: config, annotations: namespace{"defaultTolerations": ""}},
		"not in the namespace's whitelist": {
			config:      config,
			annotations: namespace{"tolerationsWhitelist": `[{"key":"only","operator":"Exists"}]`}, keys: "ok",
			wantErr: conflict + "namespace whitelist",
		},
		"namespace's empty whitelist":    {config: config, annotations: namespace{"tolerationsWhitelist": ""}, keys: "any", want: "any cluster-default"},
		"namespace's default is invalid": {config: config, annotations: namespace{"defaultTolerations": "{"}, wantErr: "unexpected end of JSON input"},
		"namespace's whitelist is invalid": {
			config: config, annotations: namespace{"tolerationsWhitelist": "{"}, keys: "a",
			wantErr: "unexpected end of JSON input",
		},
		"without configuration":  {keys: "any", want: "any"},
		"absent":                 {namespace: "absent", wantErr: `namespaces "absent" not found`},
		"namespace lookup fails": {namespace: "broken", wantErr: "Internal error occurred: no answer"},
		"subresource":            {config: config, subresource: "status", keys: "bad", want: "bad"},
	} {
		var data []byte
		if test.config != "" {
			data = []byte(test.config)
		}
		plugin, err := podtolerationrestriction.New(data, test.annotations)
		if err != nil {
			t.Fatal(err)
		}
		if test.op == "" {
			test.op = admission.Create
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
		if test.requestsCPU {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		}
		for _, k := range strings.Fields(test.keys) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: k, Operator: corev1.TolerationOpExists})
		}
		req := &admission.Request{
			Operation: test.op, Subresource: test.subresource,
			Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Namespace: test.namespace, Name: "a",
			Object: pod,
		}
		err = plugin.Admit(t.Context(), req)
		if err == nil && test.wantErr != "" || err != nil && err.Error() != test.wantErr {
			t.Errorf("%s: got error %v, want %q (empty: none)", name, err, test.wantErr)
		}
		if err != nil && strings.HasPrefix(err.Error(), conflict) {
			if again := plugin.Validate(t.Context(), req); again == nil || again.Error() != test.wantErr {
				t.Errorf("%s: Validate after Admit: got error %v, want %q", name, again, test.wantErr)
			}
			if st, ok := err.(apierrors.APIStatus); !ok || st.Status().Code != 500 || st.Status().Reason != "" {
				t.Errorf("%s: got error %#v, want a status with code 500 and no reason, as in Kubernetes", name, err)
			}
		}
		var keys []string
		for i := range pod.Spec.Tolerations {
			keys = append(keys, pod.Spec.Tolerations[i].Key)
		}
		if got := strings.Join(keys, " "); test.wantErr == "" && got != test.want {
			t.Errorf("%s: got tolerations of %q, want %q", name, got, test.want)
		}
	}
}

// TestInvalidConfigurationIsRejected checks the error of each invalid configuration.
func TestInvalidConfigurationIsRejected(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"unknown field": {file: head + "defaults: []", want: `strict decoding error: unknown field "defaults"`},
		"invalid default": {file: head + `default: [{key: "a b", operator: Odd}]`,
			want: `invalid config: [podtolerationrestriction.default[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') podtolerationrestriction.default[0].operator: Unsupported value: "Odd": supported values: "Equal", "Exists"]`},
		"invalid whitelist": {file: head + "whitelist: [{operator: Equal}]",
			want: "invalid config: [podtolerationrestriction.whitelist[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"]"},
	} {
		if _, err := podtolerationrestriction.New([]byte(c.file), nil); err == nil || err.Error() != c.want {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}
