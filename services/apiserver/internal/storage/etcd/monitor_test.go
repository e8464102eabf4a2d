package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"binnacle/services/apiserver/internal/storage/etcd"
)

func TestMonitorWarnsWhileEtcdDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var failure error
		m := &etcd.Monitor{
			Ping:      func(context.Context) error { return failure },
			Endpoints: []string{"https://etcd-0:2379"},
			Logger:    slog.New(slog.NewTextHandler(&out, nil)),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()

		time.Sleep(time.Minute)
		synctest.Wait()
		if out.Len() > 0 {
			t.Errorf("logged while etcd answers: %s", &out)
		}
		failure = errors.New("connection refused")
		time.Sleep(time.Minute)
		synctest.Wait()
		text := out.String()
		if n := strings.Count(text, "etcd does not answer"); n < 6 || n > 12 {
			t.Errorf("%d warnings in a minute:\n%s", n, text)
		}
		if !strings.Contains(text, "https://etcd-0:2379") || !strings.Contains(text, "connection refused") {
			t.Errorf("no endpoint or reason in\n%s", text)
		}
		failure = nil
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := strings.Count(out.String(), "etcd answers again"); n != 1 {
			t.Errorf("%d messages of recovery:\n%s", n, &out)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
