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

// namespace has the annotations defaultTolerations and tolerationsWhitelist.
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

const head = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\n"

// TestTolerationsAreMergedOrConflict merges the default tolerations of the namespace and of the
// cluster, and rejects tolerations that are not allowed.
func TestTolerationsAreMergedOrConflict(t *testing.T) {
	const (
		config  = head + "default: [{key: cluster-default, operator: Exists}]\nwhitelist: [{operator: Exists, key: ok}, {operator: Exists, key: cluster-default}, {operator: Exists, key: node.kubernetes.io/memory-pressure}]"
		message = "pod tolerations (possibly merged with namespace default tolerations) conflict with its "
	)
	for name, c := range map[string]struct {
		config, in  string
		annotations namespace
		op          admission.Operation
		sub         string
		keys, want  string
		cpu         bool
		err         string
	}{
		"cluster's default":         {config: config, want: "cluster-default"},
		"in the cluster's list":     {config: config, keys: "ok", want: "ok cluster-default"},
		"not in the cluster's list": {config: config, keys: "bad", err: message + "cluster whitelist"},
		"asks for some of a node":   {config: config, cpu: true, want: "cluster-default node.kubernetes.io/memory-pressure"},
		"no default on update":      {config: config, op: admission.Update, keys: "ok", want: "ok"},
		"memory pressure on update": {config: config, op: admission.Update, cpu: true, want: "node.kubernetes.io/memory-pressure"},
		"list on update":            {config: config, op: admission.Update, keys: "bad", err: message + "cluster whitelist"},
		"namespace's default":       {config: config, annotations: namespace{"defaultTolerations": `[{"key":"ok","operator":"Exists"}]`}, want: "ok"},
		"namespace's empty default": {config: config, annotations: namespace{"defaultTolerations": ""}},
		"namespace's list": {
			config:      config,
			annotations: namespace{"tolerationsWhitelist": `[{"key":"only","operator":"Exists"}]`}, keys: "ok",
			err: message + "namespace whitelist",
		},
		"namespace's empty list": {config: config, annotations: namespace{"tolerationsWhitelist": ""}, keys: "any", want: "any cluster-default"},
		"namespace's nonsense":   {config: config, annotations: namespace{"defaultTolerations": "{"}, err: "unexpected end of JSON input"},
		"list of nonsense": {
			config: config, annotations: namespace{"tolerationsWhitelist": "{"}, keys: "a",
			err: "unexpected end of JSON input",
		},
		"without configuration": {keys: "any", want: "any"},
		"absent":                {in: "absent", err: `namespaces "absent" not found`},
		"lookup fails":          {in: "broken", err: "Internal error occurred: no answer"},
		"sub-resource":          {config: config, sub: "status", keys: "bad", want: "bad"},
	} {
		var data []byte
		if c.config != "" {
			data = []byte(c.config)
		}
		plugin, err := podtolerationrestriction.New(data, c.annotations)
		if err != nil {
			t.Fatal(err)
		}
		if c.op == "" {
			c.op = admission.Create
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
		if c.cpu {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1")}
		}
		for _, k := range strings.Fields(c.keys) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: k, Operator: corev1.TolerationOpExists})
		}
		r := &admission.Request{
			Operation: c.op, Subresource: c.sub,
			Resource: &registry.Kind{Names: registry.Names{Resource: "pods"}}, Namespace: c.in, Name: "a",
			Object: pod,
		}
		err = plugin.Admit(t.Context(), r)
		if err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s: got %v, want %q", name, err, c.err)
		}
		if err != nil && strings.HasPrefix(err.Error(), message) {
			if again := plugin.Validate(t.Context(), r); again == nil || again.Error() != c.err {
				t.Errorf("%s: then %v; want non-nil, %v", name, again, c.err)
			}
			if st, ok := err.(apierrors.APIStatus); !ok || st.Status().Code != 500 || st.Status().Reason != "" {
				t.Errorf("%s: got %#v; want true, 500, \"\"", name, err)
			}
		}
		var keys []string
		for i := range pod.Spec.Tolerations {
			keys = append(keys, pod.Spec.Tolerations[i].Key)
		}
		if got := strings.Join(keys, " "); c.err == "" && got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestInvalidConfigurations(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"unknown field": {file: head + "defaults: []", want: `strict decoding error: unknown field "defaults"`},
		"no tolerations": {file: head + `default: [{key: "a b", operator: Odd}]`,
			want: `invalid config: [podtolerationrestriction.default[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') podtolerationrestriction.default[0].operator: Unsupported value: "Odd": supported values: "Equal", "Exists"]`},
		"in the list": {file: head + "whitelist: [{operator: Equal}]",
			want: "invalid config: [podtolerationrestriction.whitelist[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"]"},
	} {
		if _, err := podtolerationrestriction.New([]byte(c.file), nil); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v; want an error, %v", name, err, c.want)
		}
	}
}
