package scenarios

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"binnacle/e2e/harness"
)

// The sequence of writes to one parameter. In each round it is created, changed a few times and
// deleted.
const (
	churnWrites = 200
	churnRound  = 5
)

// deletes reports whether a write of the sequence deletes the parameter.
func deletes(seq int64) bool { return seq%churnRound == churnRound-1 }

// churned is a parameter that one writer changes through two replicas in turn.
type churned struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	clients  []dynamic.Interface
	// issued is the last write that was sent, and acknowledged the last one that each replica
	// acknowledged.
	issued       atomic.Int64
	acknowledged []atomic.Int64
}

func (c *churned) write(ctx context.Context, seq int64) error {
	at := int(seq) % len(c.clients)
	objects := c.clients[at].Resource(c.resource).Namespace("churn")
	c.issued.Store(seq)
	var err error
	value := strconv.FormatInt(seq, 10)
	switch {
	case deletes(seq):
		err = objects.Delete(ctx, "param", metav1.DeleteOptions{})
	case seq%churnRound == 0:
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "param", "annotations": map[string]any{"seq": value}}}}
		u.SetGroupVersionKind(c.kind)
		_, err = objects.Create(ctx, u, metav1.CreateOptions{})
	default:
		_, err = objects.Patch(ctx, "param", types.MergePatchType, []byte(`{"metadata":{"annotations":{"seq":"`+value+`"}}}`), metav1.PatchOptions{})
	}
	if err == nil {
		c.acknowledged[at].Store(seq)
	}
	return err
}

var judgedBy = regexp.MustCompile(`judged by ([0-9]+)`)

// judge sends a request to a replica and returns the write of the sequence by which the policy
// decided, or that there is no parameter.
func (c *churned) judge(ctx context.Context, replica int, policy string) (seq int64, none bool, err error) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "asked", "labels": map[string]any{"policy": policy}}}}
	_, err = c.clients[replica].Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("churn").Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if !apierrors.IsInvalid(err) {
		return 0, false, fmt.Errorf("no decision: %w", err)
	}
	if m := judgedBy.FindStringSubmatch(err.Error()); m != nil {
		seq, err = strconv.ParseInt(m[1], 10, 64)
		return seq, false, err
	}
	if strings.Contains(err.Error(), "no params found") {
		return 0, true, nil
	}
	return 0, false, err
}

// check sends a request to a replica. The policy must not use an older write than the last one that
// the replica had acknowledged before.
func (c *churned) check(ctx context.Context, replica int, policy string) (seq int64, err error) {
	before := c.acknowledged[replica].Load()
	seq, none, err := c.judge(ctx, replica, policy)
	if err != nil {
		return 0, err
	}
	if none {
		for seq = c.issued.Load(); seq >= before && !deletes(seq); seq-- {
		}
	}
	if seq < before {
		return seq, fmt.Errorf("replica %d uses write %d (none: %t) after acknowledging %d", replica, seq, none, before)
	}
	return seq, nil
}

// TestPolicyParametersStayCurrent changes a parameter while requests on two replicas use it. No
// replica may use an older version than it has acknowledged or go back to an older version, and the
// other replica must catch up.
func TestPolicyParametersStayCurrent(t *testing.T) {
	t.Parallel()
	etcd, broker := harness.StartEtcd(t), harness.StartNATS(t, 1)[0]
	flags := harness.WithFlags("--nats-servers=nats://"+broker.Addr, "--cluster-id=churn")
	one := harness.StartServer(t, harness.WithEtcd(etcd), flags)
	two := one.StartReplica(harness.WithEtcd(etcd), flags)
	makeNamespace(t, one.Client(), "churn")
	clients := []dynamic.Interface{dynamic.NewForConfigOrDie(one.Config()), dynamic.NewForConfigOrDie(two.Config())}
	definition := plainDefinition("churn.test")
	if err := unstructured.SetNestedField(definition.Object, "Namespaced", "spec", "scope"); err != nil {
		t.Fatal(err)
	}
	if _, err := clients[0].Resource(definitionsGVR).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*churned{
		{resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}},
		{resource: widgets("churn.test"), kind: schema.GroupVersionKind{Group: "churn.test", Version: "v1", Kind: "Widget"}},
	} {
		c.clients, c.acknowledged = clients, make([]atomic.Int64, len(clients))
		t.Run(c.kind.Kind, func(t *testing.T) { c.run(t) })
	}
}

func (c *churned) run(t *testing.T) {
	ctx, policy := t.Context(), strings.ToLower(c.kind.Kind)
	admission := func(replica int, resource string) dynamic.ResourceInterface {
		return c.clients[replica].Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
	}
	create := func(replica int, resource, kind string, spec map[string]any) {
		t.Helper()
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": policy}, "spec": spec}}
		if _, err := admission(replica, resource).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	makePolicy := func(replica int) {
		create(replica, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", map[string]any{
			"paramKind": map[string]any{"apiVersion": c.kind.GroupVersion().String(), "kind": c.kind.Kind},
			"matchConstraints": map[string]any{
				"objectSelector": map[string]any{"matchLabels": map[string]any{"policy": policy}},
				"resourceRules":  []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"secrets"}}},
			},
			"validations": []any{map[string]any{"expression": "params == null", "messageExpression": "'judged by ' + string(params.metadata.annotations.seq)"}},
		})
	}
	makeBinding := func(replica int) {
		create(replica, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", map[string]any{
			"policyName": policy, "validationActions": []any{"Deny"}, "paramRef": map[string]any{"name": "param", "namespace": "churn", "parameterNotFoundAction": "Deny"},
		})
	}
	makePolicy(0)
	makeBinding(0)
	if err := c.write(ctx, 0); err != nil {
		t.Fatal(err)
	}
	for replica := range c.clients { // wait until each enforces it
		c.follows(t, replica, policy, 0)
	}
	churning, stop := context.WithCancel(ctx)
	var asked atomic.Int64
	var askers sync.WaitGroup
	for i := range 6 {
		replica := i % len(c.clients)
		askers.Go(func() {
			last := int64(0)
			for churning.Err() == nil {
				seq, err := c.check(ctx, replica, policy)
				if err == nil && seq < last {
					err = fmt.Errorf("replica %d used write %d, then %d", replica, last, seq)
				}
				if err != nil {
					t.Error(err)
					return
				}
				last = seq
				asked.Add(1)
			}
		})
	}
	for seq := int64(1); seq < churnWrites && !t.Failed(); seq++ {
		err := c.write(ctx, seq)
		if err == nil {
			_, err = c.check(ctx, int(seq)%len(c.clients), policy)
		}
		if err != nil {
			t.Errorf("write %d: %v", seq, err)
		}
		if seq%20 == 0 {
			c.follows(t, int(seq+1)%len(c.clients), policy, seq)
		}
	}
	stop()
	askers.Wait()
	if n := asked.Load(); n < churnWrites {
		t.Errorf("got only %d requests", n)
	}
	t.Logf("%d requests during %d writes", asked.Load(), churnWrites)

	// Changes of policies and bindings take effect at once, too. The last write of the sequence
	// deleted the parameter, so every request is denied while there is a policy.
	for round := range 10 {
		here, there := round%2, (round+1)%2
		resource, again := "validatingadmissionpolicybindings", makeBinding
		if round%4 > 1 {
			resource, again = "validatingadmissionpolicies", makePolicy
		}
		if err := admission(here, resource).Delete(ctx, policy, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.judge(ctx, here, policy); err == nil {
			t.Fatalf("round %d: still denied without %s", round, resource)
		}
		harness.Eventually(t, 10*time.Second, "permission by the other replica", func() error {
			if _, _, err := c.judge(ctx, there, policy); err == nil {
				return fmt.Errorf("round %d: denied", round)
			}
			return nil
		})
		again(here)
		if _, none, err := c.judge(ctx, here, policy); err != nil || !none {
			t.Fatalf("round %d: after recreating %s: got %v", round, resource, err)
		}
		c.follows(t, there, policy, churnWrites-1)
	}
}

// follows waits until a replica uses a write or a later one.
func (c *churned) follows(t *testing.T, replica int, policy string, seq int64) {
	t.Helper()
	harness.Eventually(t, 10*time.Second, fmt.Sprintf("replica %d to use write %d", replica, seq), func() error {
		got, none, err := c.judge(t.Context(), replica, policy)
		if err == nil && (none && !deletes(seq) || !none && got < seq) {
			err = fmt.Errorf("uses write %d (none: %t)", got, none)
		}
		return err
	})
}
