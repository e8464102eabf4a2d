package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/libs/kubeclient"
	"binnacle/services/controllers/internal/events"
)

var dependent = corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "a", Name: "x", UID: "uid-x"}

// start runs a recorder in a bubble.
func start(t *testing.T, client *fake.Clientset) *events.Recorder {
	recorder := events.New(events.Config{
		Client: func(ns string) kubeclient.Interface[*corev1.Event, *corev1.EventList] {
			return client.CoreV1().Events(ns)
		},
		Component: "a-controller", Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); recorder.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return recorder
}

// written returns the Events of a namespace in the form "count message".
func written(t *testing.T, client *fake.Clientset, namespace string) (out []string) {
	t.Helper()
	synctest.Wait()
	list, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		out = append(out, fmt.Sprintf("%d %s", list.Items[i].Count, list.Items[i].Message))
	}
	slices.Sort(out)
	return out
}

// warn records an Event. The names of Events have their time, so time passes.
func warn(r *events.Recorder, message string) {
	r.Warn(dependent, "Bad", message)
	time.Sleep(time.Second) // the bubble's time
}

// TestRepeatedEventIsCounted checks that equal warnings increase the count of one Event.
func TestRepeatedEventIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		recorder := start(t, client)
		first := time.Now()
		warn(recorder, "one")
		warn(recorder, "one")
		last := time.Now()
		warn(recorder, "one")
		if got := written(t, client, "a"); !slices.Equal(got, []string{"3 one"}) {
			t.Fatalf("got events %q, want [\"3 one\"]", got)
		}
		list, err := client.CoreV1().Events("a").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		event := &list.Items[0]
		if event.InvolvedObject != dependent || event.Type != corev1.EventTypeWarning || event.Reason != "Bad" ||
			event.Source.Component != "a-controller" || event.ReportingController != "a-controller" ||
			event.Name != fmt.Sprintf("x.%x", first.UnixNano()) {
			t.Errorf("got event %+v, want a warning Bad of a-controller about the dependent", event)
		}
		if !event.FirstTimestamp.Time.Equal(first) || !event.LastTimestamp.Time.Equal(last) {
			t.Errorf("occurred from %v to %v, want %v to %v", event.FirstTimestamp, event.LastTimestamp, first, last)
		}
		// An Event that has expired is created again, with its count.
		if err := client.CoreV1().Events("a").Delete(t.Context(), event.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		warn(recorder, "one")
		if got := written(t, client, "a"); !slices.Equal(got, []string{"4 one"}) {
			t.Errorf("got events %q, want [\"4 one\"]", got)
		}
	})
}

// TestSimilarEventsAreCombined checks that many different messages about an object share an Event
// after the tenth.
func TestSimilarEventsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		recorder := start(t, client)
		for i := range 12 {
			warn(recorder, fmt.Sprintf("message %c", 'a'+i))
		}
		warn(recorder, "message a")
		got := written(t, client, "a")
		if len(got) != 10 || !slices.Contains(got, "3 (combined from similar events): message l") ||
			!slices.Contains(got, "2 message a") {
			t.Errorf("got events %q; want 10, one that combines 3 similar ones, and 2 of message a", got)
		}
		time.Sleep(11 * time.Minute) // the bubble's time
		warn(recorder, "later")
		if got := written(t, client, "a"); !slices.Contains(got, "1 later") {
			t.Errorf("got events %q, want a new one after the window", got)
		}
	})
}

// TestEventsOfAnObjectAreLimited checks the limit of Events of one object, and that other objects
// are not affected.
func TestEventsOfAnObjectAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		recorder := start(t, client)
		for range 40 {
			warn(recorder, "one")
		}
		if got := written(t, client, "a"); !slices.Equal(got, []string{"25 one"}) {
			t.Errorf("got events %q, want [\"25 one\"]", got)
		}
		node := dependent
		node.Kind, node.Namespace, node.Name = "Node", "", "Not:valid"
		recorder.Warn(node, "Bad", "one")
		if got := written(t, client, "default"); !slices.Equal(got, []string{"1 one"}) {
			t.Errorf("got events %q of another object, want [\"1 one\"]", got)
		}
		time.Sleep(5 * time.Minute) // the bubble's time
		warn(recorder, "one")
		if got := written(t, client, "a"); !slices.Equal(got, []string{"41 one"}) {
			t.Errorf("got events %q, want [\"41 one\"]", got)
		}
	})
}

// TestEventIsRetriedUnlessRejected checks how often an Event is sent after each kind of failure.
func TestEventIsRetriedUnlessRejected(t *testing.T) {
	rejected := apierrors.NewForbidden(corev1.Resource("events"), "x", errors.New("a test"))
	for _, test := range []struct {
		name     string
		err      error
		failures int
		attempts int
		written  bool
	}{
		{name: "unreachable for a while", err: errors.New("connection refused"), failures: 3, attempts: 4, written: true},
		{name: "unreachable", err: errors.New("connection refused"), failures: 100, attempts: 12},
		{name: "rejected", err: rejected, failures: 100, attempts: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, attempts := fake.NewClientset(), 0
				client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
					attempts++
					return attempts <= test.failures, nil, test.err
				})
				warn(start(t, client), "one")
				time.Sleep(time.Hour) // the bubble's time
				if got := written(t, client, "a"); attempts != test.attempts || (len(got) == 1) != test.written {
					t.Errorf("got %d attempts, events %q, want %d, written: %t", attempts, got, test.attempts, test.written)
				}
			})
		})
	}
}
