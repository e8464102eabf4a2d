package reflector_test

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
	"k8s.io/apimachinery/pkg/watch"

	"binnacle/libs/reflector"
)

// server responds to lists and watches from a script: each response once, in order.
type server struct {
	t       *testing.T
	lists   []any // *corev1.ConfigMapList or error
	watches []any // []watch.Event, after which the watch ends, or error
	calls   []string
}

func (s *server) List(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
	s.calls = append(s.calls, "list "+options.Continue)
	if len(s.lists) == 0 {
		return nil, apierrors.NewServiceUnavailable("no more lists")
	}
	next := s.lists[0]
	s.lists = s.lists[1:]
	if err, failed := next.(error); failed {
		return nil, err
	}
	return next.(*corev1.ConfigMapList), nil
}

func (s *server) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.calls = append(s.calls, "watch "+options.ResourceVersion)
	fakeWatcher := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 10})
	if len(s.watches) == 0 { // stays open
		return fakeWatcher, nil
	}
	next := s.watches[0]
	s.watches = s.watches[1:]
	if err, failed := next.(error); failed {
		return nil, err
	}
	for _, ev := range next.([]watch.Event) {
		fakeWatcher.Action(ev.Type, ev.Object)
	}
	time.AfterFunc(time.Minute, fakeWatcher.Stop)
	return fakeWatcher, nil
}

// recordingSink records the calls.
type recordingSink struct{ *server }

func (s recordingSink) add(format string, args ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}
func (s recordingSink) StartList()                { s.add("begin") }
func (s recordingSink) AddListed(o metav1.Object) { s.add("listed %s", o.GetName()) }
func (s recordingSink) EndList(revision string)   { s.add("end %s", revision) }
func (s recordingSink) Set(o metav1.Object)       { s.add("set %s", o.GetName()) }
func (s recordingSink) Remove(o metav1.Object)    { s.add("remove %s", o.GetName()) }
func (s recordingSink) Advance(revision string)   { s.add("advance %s", revision) }
func object(name, revision string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: revision}}
}

func page(revision, continueToken string, names ...string) *corev1.ConfigMapList {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: revision, Continue: continueToken}}
	for _, name := range names {
		list.Items = append(list.Items, *object(name, "1"))
	}
	return list
}

// checkCalls runs a reflector and compares the calls.
func checkCalls(t *testing.T, s *server, want ...string) {
	t.Helper()
	runForAnHour(t, s, nil)
	if !slices.Equal(s.calls, want) {
		t.Errorf("got  %q\nwant %q", s.calls, want)
	}
}

// runForAnHour runs a reflector in a bubble for an hour of its time.
func runForAnHour(t *testing.T, s *server, change func(*reflector.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		config := reflector.Config{
			Resource: "configmaps",
			List:     s.List,
			Watch:    s.Watch,
			Sink:     recordingSink{s},
			PageSize: 2,
			MinRetry: time.Second,
			MaxRetry: time.Minute,
			Log:      slog.New(slog.DiscardHandler),
		}
		if change != nil {
			change(&config)
		}
		r := reflector.New(config)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(time.Hour)
		if !r.Synced() {
			t.Error("Synced() = false after an hour, want true")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v, want error %v", err, context.Canceled)
		}
	})
}

// TestReflectorListsInPagesAndResumesWatches checks that failed pages and watches are retried, and
// that a watch resumes after the last event or bookmark.
func TestReflectorListsInPagesAndResumesWatches(t *testing.T) {
	checkCalls(t, &server{
		t: t, lists: []any{apierrors.NewInternalError(errors.New("a test")), page("5", "next", "a", "b"), page("5", "", "c")},
		watches: []any{
			[]watch.Event{
				{Type: watch.Added, Object: object("d", "6")},
				{Type: watch.Modified, Object: object("a", "7")},
				{Type: watch.Deleted, Object: object("b", "8")},
				{Type: watch.Bookmark, Object: object("", "9")},
			},
			apierrors.NewTooManyRequests("later", 1),
		},
	}, "begin", "list ", "begin", "list ", "listed a", "listed b", "list next", "listed c", "end 5",
		"watch 5", "set d", "set a", "remove b", "advance 9", "watch 9", "watch 9")
}

// TestReflectorListsAgainWhenResourceVersionIsLost checks that each error that says that the
// revision is lost causes a new list.
func TestReflectorListsAgainWhenResourceVersionIsLost(t *testing.T) {
	tooLarge := apierrors.NewTimeoutError("Too large resource version", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	expired := apierrors.NewResourceExpired("too old")
	for name, lost := range map[string]any{
		"expired": expired, "gone": apierrors.NewGone("gone"), "ahead of the server": tooLarge,
		"expired while watching": []watch.Event{{Type: watch.Error, Object: &expired.ErrStatus}},
	} {
		t.Run(name, func(t *testing.T) {
			checkCalls(t, &server{t: t, lists: []any{page("5", "", "a"), page("8", "", "b")}, watches: []any{lost}},
				"begin", "list ", "listed a", "end 5", "watch 5", "begin", "list ", "listed b", "end 8", "watch 8")
		})
	}
}

// TestReflectorListsAgainAfterServerWasUnreachable checks that RelistUnanswered causes a new list
// after a connection error, and that the watch resumes without it.
func TestReflectorListsAgainAfterServerWasUnreachable(t *testing.T) {
	unreachable := errors.New("connection refused")
	checkCalls(t, &server{t: t, lists: []any{page("5", "")}, watches: []any{unreachable}}, "begin", "list ", "end 5",
		"watch 5", "watch 5")
	s := &server{t: t, lists: []any{page("5", ""), page("6", "", "a")}, watches: []any{unreachable}}
	runForAnHour(t, s, func(c *reflector.Config) { c.RelistUnanswered = true })
	if want := []string{"begin", "list ", "end 5", "watch 5", "begin", "list ", "listed a",
		"end 6"}; !slices.Equal(s.calls[:len(want)], want) {
		t.Errorf("got  %q\nwant %q", s.calls, want)
	}
}

// TestResourceThatIsNotServedHasNoObjects checks that ErrNotServed counts as an empty list, and
// that the resource is listed once it is served.
func TestResourceThatIsNotServedHasNoObjects(t *testing.T) {
	checkCalls(t, &server{t: t, lists: []any{reflector.ErrNotServed, page("5", "", "a")}},
		"begin", "list ", "begin", "end ", "begin", "list ", "listed a", "end 5", "watch 5")
}
