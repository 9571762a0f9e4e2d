// A provider of OpenID Connect. One argument: {port, redirect_uri, logout_uri}. Anybody logs in with any password; whoever is
// called admin-... is in the group `admins`, everybody else in `readers`, and nobody-... in none. It prints "ready".

import { Provider } from "oidc-provider";

const { port, redirect_uri, logout_uri } = JSON.parse(process.argv[2]);

function groups(id) {
  if (id.startsWith("nobody")) return [];
  return [id.startsWith("admin") ? "admins" : "readers", "everybody"];
}

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      client_id: "sluice",
      client_secret: "the-client-secret",
      redirect_uris: [redirect_uri],
      backchannel_logout_uri: logout_uri,
      backchannel_logout_session_required: true,
    },
  ],
  claims: { openid: ["sub"], profile: ["name"], groups: ["groups"] },
  scopes: ["openid", "profile", "groups"],
  features: { backchannelLogout: { enabled: true } },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, name: `The person ${id}`, groups: groups(id) }),
  }),
  // it asks no address of this machine by itself
  fetch: (url, { dispatcher, ...options }) => fetch(url, options),
  cookies: { keys: ["a key of a test"] },
});

provider.on("backchannel.error", (_, error) => console.error(error));
provider.listen(port, "127.0.0.1", () => console.log("ready"));
