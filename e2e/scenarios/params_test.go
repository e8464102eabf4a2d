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

// isDeletion reports whether a write of the sequence deletes the parameter.
func isDeletion(seq int64) bool { return seq%churnRound == churnRound-1 }

// churnTest is a parameter that one writer changes through two replicas in turn.
type churnTest struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	clients  []dynamic.Interface
	// issued is the last write that was sent, and acknowledged the last one that each replica
	// acknowledged.
	issued       atomic.Int64
	acknowledged []atomic.Int64
}

// policyName returns the name of the policy and of its binding.
func (c *churnTest) policyName() string { return strings.ToLower(c.kind.Kind) }

// writeParam performs a write of the sequence.
func (c *churnTest) writeParam(ctx context.Context, seq int64) error {
	at := int(seq) % len(c.clients)
	objects := c.clients[at].Resource(c.resource).Namespace("churn")
	c.issued.Store(seq)
	var err error
	value := strconv.FormatInt(seq, 10)
	switch {
	case isDeletion(seq):
		err = objects.Delete(ctx, "param", metav1.DeleteOptions{})
	case seq%churnRound == 0:
		object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
			"name":        "param",
			"annotations": map[string]any{"seq": value},
		}}}
		object.SetGroupVersionKind(c.kind)
		_, err = objects.Create(ctx, object, metav1.CreateOptions{})
	default:
		_, err = objects.Patch(ctx, "param", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"seq":"`+value+`"}}}`), metav1.PatchOptions{})
	}
	if err == nil {
		c.acknowledged[at].Store(seq)
	}
	return err
}

// judgedBy matches the number of a write in the message of the policy.
var judgedBy = regexp.MustCompile(`judged by ([0-9]+)`)

// askForDecision sends a request to a replica. The policy denies every request, and the message
// tells which version of the parameter it used. askForDecision returns the number of the write of
// that version, or that the parameter is absent. It returns an error if the request was not denied.
func (c *churnTest) askForDecision(ctx context.Context, replica int) (seq int64, absent bool, err error) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "Secret",
		"metadata":   map[string]any{"name": "asked", "labels": map[string]any{"policy": c.policyName()}},
	}}
	_, err = c.clients[replica].Resource(schema.GroupVersionResource{
		Version:  "v1",
		Resource: "secrets",
	}).Namespace("churn").Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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

// checkDecision sends a request to a replica. The policy must not use an older write than the last
// one that the replica had acknowledged before.
func (c *churnTest) checkDecision(ctx context.Context, replica int) (seq int64, err error) {
	before := c.acknowledged[replica].Load()
	seq, absent, err := c.askForDecision(ctx, replica)
	if err != nil {
		return 0, err
	}
	if absent {
		// The response does not tell which write deleted the parameter. Assume the newest deletion
		// so far. If no deletion is as new as before, seq becomes before-1, and the check fails.
		for seq = c.issued.Load(); seq >= before && !isDeletion(seq); seq-- {
		}
	}
	if seq < before {
		return seq, fmt.Errorf("replica %d uses write %d (absent: %t) after acknowledging %d", replica, seq, absent, before)
	}
	return seq, nil
}

// TestPolicyParametersStayCurrent changes a parameter while requests on two replicas use it. No
// replica may use an older version than it has acknowledged or go back to an older version, and the
// other replica must catch up.
func TestPolicyParametersStayCurrent(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	broker := harness.StartNATS(t, 1)[0]
	flags := harness.WithFlags("--nats-servers=nats://"+broker.Addr, "--cluster-id=churn")
	one := harness.StartServer(t, harness.WithEtcd(etcd), flags)
	two := one.StartReplica(harness.WithEtcd(etcd), flags)
	createNamespace(t, one.Client(), "churn")
	clients := []dynamic.Interface{dynamic.NewForConfigOrDie(one.Config()), dynamic.NewForConfigOrDie(two.Config())}
	definition := plainDefinition("churn.test")
	if err := unstructured.SetNestedField(definition.Object, "Namespaced", "spec", "scope"); err != nil {
		t.Fatal(err)
	}
	if _, err := clients[0].Resource(definitionsGVR).Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, churn := range []*churnTest{
		{
			resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			kind:     schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		},
		{
			resource: widgetResource("churn.test"),
			kind:     schema.GroupVersionKind{Group: "churn.test", Version: "v1", Kind: "Widget"},
		},
	} {
		churn.clients = clients
		churn.acknowledged = make([]atomic.Int64, len(clients))
		t.Run(churn.kind.Kind, func(t *testing.T) { churn.run(t) })
	}
}

// run tests one kind of parameter.
func (c *churnTest) run(t *testing.T) {
	c.createPolicy(t, 0)
	c.createBinding(t, 0)
	if err := c.writeParam(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for replica := range c.clients { // wait until each enforces it
		c.awaitWrite(t, replica, 0)
	}
	c.testWrites(t)
	c.testPolicyChanges(t)
}

// admissionClient returns the client of a kind of policy or binding.
func (c *churnTest) admissionClient(replica int, resource string) dynamic.ResourceInterface {
	return c.clients[replica].Resource(schema.GroupVersionResource{
		Group:    "admissionregistration.k8s.io",
		Version:  "v1",
		Resource: resource,
	})
}

// create creates a policy or binding.
func (c *churnTest) create(t *testing.T, replica int, resource, kind string, spec map[string]any) {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1",
		"kind":       kind,
		"metadata":   map[string]any{"name": c.policyName()},
		"spec":       spec,
	}}
	if _, err := c.admissionClient(replica, resource).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createPolicy creates a policy that rejects secrets with the number of the write in the message.
func (c *churnTest) createPolicy(t *testing.T, replica int) {
	t.Helper()
	c.create(t, replica, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", map[string]any{
		"paramKind": map[string]any{"apiVersion": c.kind.GroupVersion().String(), "kind": c.kind.Kind},
		"matchConstraints": map[string]any{
			"objectSelector": map[string]any{"matchLabels": map[string]any{"policy": c.policyName()}},
			"resourceRules": []any{map[string]any{
				"apiGroups":   []any{""},
				"apiVersions": []any{"v1"},
				"operations":  []any{"CREATE"},
				"resources":   []any{"secrets"},
			}},
		},
		// The policy has a parameter whenever it evaluates the expression, so it denies every
		// request.
		"validations": []any{map[string]any{
			"expression":        "params == null",
			"messageExpression": "'judged by ' + string(params.metadata.annotations.seq)",
		}},
	})
}

// createBinding binds the policy to the parameter.
func (c *churnTest) createBinding(t *testing.T, replica int) {
	t.Helper()
	c.create(t, replica, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", map[string]any{
		"policyName":        c.policyName(),
		"validationActions": []any{"Deny"},
		"paramRef":          map[string]any{"name": "param", "namespace": "churn", "parameterNotFoundAction": "Deny"},
	})
}

// testWrites performs the sequence of writes while clients send requests.
func (c *churnTest) testWrites(t *testing.T) {
	ctx := t.Context()
	clientsCtx, stop := context.WithCancel(ctx)
	defer stop()
	var requests atomic.Int64
	var clients sync.WaitGroup
	for i := range 6 {
		clients.Go(func() { c.runClient(clientsCtx, t, i%len(c.clients), &requests) })
	}
	for seq := int64(1); seq < churnWrites && !t.Failed(); seq++ {
		err := c.writeParam(ctx, seq)
		if err == nil {
			_, err = c.checkDecision(ctx, int(seq)%len(c.clients))
		}
		if err != nil {
			t.Errorf("write %d: %v", seq, err)
		}
		if seq%20 == 0 {
			c.awaitWrite(t, int(seq+1)%len(c.clients), seq)
		}
	}
	stop()
	clients.Wait()
	if n := requests.Load(); n < churnWrites {
		t.Errorf("got only %d requests, want at least %v", n, churnWrites)
	}
	t.Logf("%d requests during %d writes", requests.Load(), churnWrites)
}

// runClient sends requests to a replica until ctx ends. The replica must not go back to an older
// write.
func (c *churnTest) runClient(ctx context.Context, t *testing.T, replica int, requests *atomic.Int64) {
	last := int64(0)
	for ctx.Err() == nil {
		seq, err := c.checkDecision(t.Context(), replica)
		if err == nil && seq < last {
			err = fmt.Errorf("replica %d used write %d, then %d", replica, last, seq)
		}
		if err != nil {
			t.Error(err)
			return
		}
		last = seq
		requests.Add(1)
	}
}

// testPolicyChanges checks that changes of policies and bindings take effect at once, too. The last
// write of the sequence deleted the parameter, so every request is denied while there is a policy.
func (c *churnTest) testPolicyChanges(t *testing.T) {
	ctx := t.Context()
	for round := range 10 {
		here, there := round%2, (round+1)%2
		resource := "validatingadmissionpolicybindings"
		recreate := c.createBinding
		if round%4 > 1 {
			resource = "validatingadmissionpolicies"
			recreate = c.createPolicy
		}
		if err := c.admissionClient(here, resource).Delete(ctx, c.policyName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		// Without an error, the request was denied.
		if _, _, err := c.askForDecision(ctx, here); err == nil {
			t.Fatalf("round %d: still denied without %s, want an error", round, resource)
		}
		harness.Eventually(t, 10*time.Second, "permission by the other replica", func() error {
			if _, _, err := c.askForDecision(ctx, there); err == nil {
				return fmt.Errorf("round %d: denied", round)
			}
			return nil
		})
		recreate(t, here)
		if _, absent, err := c.askForDecision(ctx, here); err != nil || !absent {
			t.Fatalf("round %d: after recreating %s: got %v", round, resource, err)
		}
		c.awaitWrite(t, there, churnWrites-1)
	}
}

// awaitWrite waits until a replica uses a write or a later one.
func (c *churnTest) awaitWrite(t *testing.T, replica int, seq int64) {
	t.Helper()
	harness.Eventually(t, 10*time.Second, fmt.Sprintf("replica %d to use write %d", replica, seq), func() error {
		got, absent, err := c.askForDecision(t.Context(), replica)
		// An absent parameter is the effect of the write seq only if that was a deletion.
		if err == nil && (absent && !isDeletion(seq) || !absent && got < seq) {
			err = fmt.Errorf("uses write %d (absent: %t)", got, absent)
		}
		return err
	})
}
