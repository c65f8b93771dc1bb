package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// topology is how the Redis servers stand to each other.
type topology string

const (
	standalone topology = "standalone"
	sentinel   topology = "sentinel"
	cluster    topology = "cluster"
)

// redisTarget is where the store is. It holds passwords: print only its String.
type redisTarget struct {
	topology           topology
	addrs              []string
	master             string // of a sentinel
	db                 int
	username, password string
	// A sentinel may want a password of its own.
	sentinelUsername, sentinelPassword string
	tls                                bool
}

// String names the servers, never a password.
func (t redisTarget) String() string {
	s := string(t.topology) + " " + strings.Join(t.addrs, ",")
	if t.master != "" {
		s += "/" + t.master
	}
	return s
}

// parseRedis reads the URLs of one store. Sentinels and cluster nodes may be given in one URL, separated by commas, or
// in several that differ only in their hosts. Its errors never repeat what could be a password.
func parseRedis(urls []string) (redisTarget, error) {
	var all redisTarget
	for i, u := range urls {
		t, err := parseRedisURL(u)
		if err != nil {
			return redisTarget{}, fmt.Errorf("URL %d: %w", i+1, err)
		}
		if i == 0 {
			all = t
			continue
		}
		addrs := t.addrs
		t.addrs = all.addrs
		if t.topology == standalone || !t.equal(all) {
			return redisTarget{}, errors.New("several URLs must be redis-sentinel:// or redis-cluster:// and differ only in their hosts")
		}
		all.addrs = append(all.addrs, addrs...)
	}
	return all, nil
}

func (t redisTarget) equal(o redisTarget) bool {
	return t.topology == o.topology && t.master == o.master && t.db == o.db && t.tls == o.tls &&
		t.username == o.username && t.password == o.password &&
		t.sentinelUsername == o.sentinelUsername && t.sentinelPassword == o.sentinelPassword
}

// parseRedisURL reads scheme://[user:password@]host[:port][,host[:port]...][/path][?query]. net/url refuses several
// hosts, so the parts are cut by hand.
func parseRedisURL(raw string) (redisTarget, error) {
	// A Secret that was made of a file ends with its line break.
	scheme, rest, ok := strings.Cut(strings.TrimSpace(raw), "://")
	if !ok {
		return redisTarget{}, errors.New("must begin with " + redisSchemes)
	}
	var t redisTarget
	port := "6379"
	switch scheme {
	case "redis", "rediss":
		t.topology = standalone
	case "redis-sentinel", "rediss-sentinel":
		t.topology, port = sentinel, "26379"
	case "redis-cluster", "rediss-cluster":
		t.topology = cluster
	default:
		return redisTarget{}, errors.New("must begin with " + redisSchemes)
	}
	t.tls = strings.HasPrefix(scheme, "rediss")

	rest, query, _ := strings.Cut(rest, "?")
	// A password with a raw slash is a common slip; looking for the last @ first keeps it out of the path's error.
	user, hosts := "", rest
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		user, hosts = rest[:i], rest[i+1:]
	}
	hosts, path, _ := strings.Cut(hosts, "/")
	for _, set := range []func() error{
		func() error { return t.setUser(user) },
		func() error { return t.setHosts(hosts, port) },
		func() error { return t.setPath(path) },
		func() error { return t.setQuery(query) },
	} {
		if err := set(); err != nil {
			return redisTarget{}, err
		}
	}
	return t, nil
}

const redisSchemes = "redis://, rediss://, redis-sentinel:// or redis-cluster://"

func (t *redisTarget) setUser(s string) error {
	user, password, ok := strings.Cut(s, ":")
	var err, err2 error
	if t.username, err = url.PathUnescape(user); err == nil {
		t.password, err2 = url.PathUnescape(password)
	}
	switch {
	case err != nil || err2 != nil:
		return errors.New("user and password must be percent-encoded")
	case s != "" && !ok:
		return errors.New("credentials must be user:password or :password before the @")
	}
	return nil
}

func (t *redisTarget) setHosts(s, port string) error {
	for h := range strings.SplitSeq(s, ",") {
		if h == "" {
			return errors.New("a host is missing")
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), port)
		}
		_, p, err := net.SplitHostPort(h)
		if n, bad := strconv.Atoi(p); err != nil || bad != nil || n < 1 || n > 65535 {
			return fmt.Errorf("host %d must be host or host:port with a port of 1 to 65535", len(t.addrs)+1)
		}
		t.addrs = append(t.addrs, h)
	}
	if t.topology == standalone && len(t.addrs) > 1 {
		return errors.New("redis:// takes one host; several need redis-sentinel:// or redis-cluster://")
	}
	return nil
}

func (t *redisTarget) setPath(s string) error {
	db := s
	switch t.topology {
	case cluster:
		if s != "" {
			return errors.New("redis-cluster:// takes no database")
		}
	case sentinel:
		t.master, db, _ = strings.Cut(s, "/")
		if t.master == "" {
			return errors.New("redis-sentinel:// needs the master's name: redis-sentinel://host:26379/mymaster")
		}
	}
	if db == "" {
		return nil
	}
	n, err := strconv.Atoi(db)
	if err != nil || n < 0 {
		return errors.New("the database must be a number from 0")
	}
	t.db = n
	return nil
}

func (t *redisTarget) setQuery(s string) error {
	q, err := url.ParseQuery(s)
	if err != nil {
		return errors.New("the query must be percent-encoded")
	}
	for k := range q {
		switch {
		case t.topology == sentinel && k == "sentinel_username":
			t.sentinelUsername = q.Get(k)
		case t.topology == sentinel && k == "sentinel_password":
			t.sentinelPassword = q.Get(k)
		default:
			return errors.New("the query may hold only sentinel_username and sentinel_password, for redis-sentinel://")
		}
	}
	return nil
}

// storeTimeout bounds a dial, a read and a write. What takes longer counts as away; a sync must not wait for it.
const storeTimeout = time.Second

// client connects lazily: it does no I/O before the first command.
func (t redisTarget) client() redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: t.addrs, MasterName: t.master, DB: t.db,
		Username: t.username, Password: t.password,
		SentinelUsername: t.sentinelUsername, SentinelPassword: t.sentinelPassword,
		ClientName:            "retryplane",
		ContextTimeoutEnabled: true,
		DialTimeout:           storeTimeout, ReadTimeout: storeTimeout, WriteTimeout: storeTimeout,
		DialerRetries: 1,
		MaxRetries:    -1, // a script that draws from a budget must not run twice
		// A handshake that only Redis Enterprise answers; every new connection would ask for it in vain.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if t.tls {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	switch t.topology {
	case sentinel:
		return redis.NewFailoverClient(o.Failover())
	case cluster:
		c := o.Cluster()
		// The default of a minute leaves a killed master unreachable for over 9 s; UniversalOptions does not know the field.
		c.ClusterStateReloadInterval = time.Second
		return redis.NewClusterClient(c)
	}
	return redis.NewClient(o.Simple())
}
