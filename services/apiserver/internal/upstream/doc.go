// Package upstream carries requests on to kubelets, pods and services: plain
// HTTP, connections that are upgraded to SPDY or WebSocket, and logs.
//
// Clients that speak WebSocket to us are served in SPDY by the kubelet: the
// channels of v5.channel.k8s.io become streams (translate.go), and a forwarded
// port's SPDY is taken out of the messages that carry it (tunnel.go). Everything
// ends when the request's context does. Connections that are upgraded are made by the
// room upgrade, which bounds what the other side says until it agrees.
//
// The endpoints decide what a request is about and may do; this package knows
// locations and transports alone.
package upstream
