// The tenants that were open last in this browser. Names are no secret, so they outlive the session.

const key = 'compute-recent-tenants';

export function recentTenants(): string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(key) ?? '[]');
    return Array.isArray(stored) ? stored.filter((tenant) => typeof tenant === 'string').slice(0, 8) : [];
  } catch {
    return [];
  }
}

export function rememberTenant(tenant: string) {
  const others = recentTenants().filter((other) => other !== tenant);
  localStorage.setItem(key, JSON.stringify([tenant, ...others].slice(0, 8)));
}
