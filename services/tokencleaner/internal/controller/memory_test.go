package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/libs/bootstraptoken"
	"binnacle/services/tokencleaner/internal/controller"
)

// BenchmarkMemory reports the memory per token in the queue.
func BenchmarkMemory(b *testing.B) {
	const secrets, page = 100_000, 500
	for range b.N {
		client := fake.NewClientset()
		expiration := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		client.PrependReactor("list", "secrets", func(action clienttesting.Action) (bool, kuberuntime.Object, error) {
			from, _ := strconv.Atoi(action.(clienttesting.ListActionImpl).ListOptions.Continue)
			list := &corev1.SecretList{}
			list.ResourceVersion = "7"
			for i := from; i < from+page; i++ {
				object := tokenSecret(fmt.Sprintf("%06d", i), expiration)
				object.UID = types.UID(fmt.Sprintf("%036d", i))
				object.Data[bootstraptoken.KeyDescription] = make([]byte, 1<<10)
				list.Items = append(list.Items, *object)
			}
			if from+page < secrets {
				list.Continue = strconv.Itoa(from + page)
			}
			return true, list, nil
		})
		cleaner := controller.New(controller.Config{
			Secrets: client.CoreV1().Secrets(bootstraptoken.Namespace),
			Events:  client.CoreV1().Events(bootstraptoken.Namespace),
			Log:     slog.New(slog.DiscardHandler),
		})
		before := heap()
		ctx, cancel := context.WithCancel(b.Context())
		listed, done := make(chan struct{}), make(chan struct{})
		cleaner.Log = slog.New(listNotifier{slog.DiscardHandler, listed})
		go func() { defer close(done); _ = cleaner.Run(ctx) }()
		<-listed
		b.ReportMetric(float64(heap()-before)/secrets, "B/secret")
		cancel()
		<-done
	}
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// listNotifier closes a channel at the first log record, which reports the end of the list.
type listNotifier struct {
	slog.Handler
	listed chan struct{}
}

func (n listNotifier) Enabled(context.Context, slog.Level) bool { return true }

func (n listNotifier) Handle(context.Context, slog.Record) error { close(n.listed); return nil }
