package etcd

import (
	"context"
	"log/slog"
	"time"
)

// Times of a Monitor.
const (
	monitorInterval = 2 * time.Second
	monitorTimeout  = 3 * time.Second
	// monitorRepeat is the time after which a warning is repeated.
	monitorRepeat = 5 * time.Second
)

// Monitor logs a warning every few seconds while etcd does not answer, and a message when
// it answers again.
type Monitor struct {
	// Ping returns nil if etcd answers.
	Ping func(context.Context) error
	// Endpoints name the servers in the log.
	Endpoints []string
	Logger    *slog.Logger
}

// Run checks etcd every two seconds until ctx ends. It returns nil.
func (m *Monitor) Run(ctx context.Context) error {
	ticker := time.NewTicker(monitorInterval)
	defer ticker.Stop()
	var since, warned time.Time
	for {
		err := m.check(ctx)
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if since.IsZero() {
				since = now
			}
			if now.Sub(warned) >= monitorRepeat {
				warned = now
				m.Logger.Warn("etcd unreachable", "endpoints", m.Endpoints, "error", err, "duration", now.Sub(since).Round(time.Second).String())
			}
		case !since.IsZero():
			m.Logger.Info("etcd reachable again", "endpoints", m.Endpoints, "duration", now.Sub(since).Round(time.Second).String())
			since, warned = time.Time{}, time.Time{}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (m *Monitor) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	return m.Ping(ctx)
}
